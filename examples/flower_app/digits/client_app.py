"""The nodes' part; `secure_mod` answers in the place of the app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from smpc_dp.integrations.flower import secure_mod

from .task import rows_of, train


def fit(message: Message, context: Context) -> Message:
    """Train from the server's model on the node's rows."""
    partition, partitions = (context.node_config[key] for key in ("partition-id", "num-partitions"))
    x, y = rows_of(int(partition), int(partitions))
    arrays, error = train(message.content["arrays"].to_numpy_ndarrays(), x, y)
    metrics = MetricRecord({"num-examples": len(y), "error": error})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)


app = ClientApp(mods=[secure_mod])
app.train()(fit)
