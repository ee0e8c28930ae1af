"""The server's part: FedAvg over secure averages."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from smpc_dp.integrations.flower import Average, SecureGrid, Terms

from .task import accuracy, initial

ERROR = {"error": (0.0, 1.0)}


def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy on rows that no node has."""
    secure = SecureGrid(grid, Terms(Average(str(context.run_config["session"]), ERROR)))
    result = secure.start(
        FedAvg(fraction_evaluate=0.0),
        initial_arrays=ArrayRecord(initial()),
        num_rounds=int(context.run_config["rounds"]),
    )
    for done in secure.rounds:
        print(f"request {done.number}: {done.seconds:.1f} s, lost: {', '.join(done.lost) or 'nobody'}")
    print(f"accuracy {accuracy(result.arrays.to_numpy_ndarrays()):.4f}")


app = ServerApp()
app.main()(main)
