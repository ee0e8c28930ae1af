// What it costs emp-sh2pc to evaluate a circuit in Bristol Fashion between two processes, over plain TCP on loopback:
//
//     emp_circuit FILE INSTANCES TIMES
//
// The garbler gives the first half of the input values and the evaluator the others; the garbler alone gets the
// outputs, which are checked. All is done TIMES times over one connection, each time with a new session: delta,
// base transfers and the extension for just as many bits as the evaluator puts in, nothing is kept. Figures named
// "first" are of the first time, "last" of the last. "wall" counts from before the setup until the garbler has the
// outputs, "garbler" and "evaluator" are processor time of all threads of that process in this while, "sent" is
// what both send. Connecting and reading the file are not counted. Instances go through PIECE by PIECE.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <fstream>
#include <numeric>

#include "driver.h"

#include "emp-sh2pc/emp-sh2pc.h"

using emp::block;

namespace {

// Labels of so many instances stay in the cache.
constexpr std::size_t PIECE = 256;

struct Gate {
    enum Kind { AND, XOR, INV } kind;
    std::size_t a, b, out;
};

struct Circuit {
    std::size_t wires = 0, ours = 0, theirs = 0, outputs = 0;
    std::vector<Gate> gates;

    explicit Circuit(const std::string &path) {
        std::ifstream file(path);
        const auto next = [&] {
            std::size_t read = 0;
            if (!(file >> read)) driver::fail(path + ": not a circuit in Bristol Fashion");
            return read;
        };
        gates.resize(next());
        wires = next();
        std::vector<std::size_t> inputs(next());
        for (std::size_t &width : inputs) width = next();
        const auto half = inputs.begin() + (std::ptrdiff_t)(inputs.size() / 2);
        ours = std::accumulate(inputs.begin(), half, std::size_t{0});
        theirs = std::accumulate(half, inputs.end(), std::size_t{0});
        for (std::size_t values = next(); values > 0; --values) outputs += next();
        for (Gate &gate : gates) {
            const std::size_t count = next();
            if (next() != 1 || count < 1 || count > 2) driver::fail(path + ": a gate of an unknown kind");
            gate.a = next();
            gate.b = count == 2 ? next() : gate.a;
            gate.out = next();
            std::string kind;
            file >> kind;
            if (kind == "AND" && count == 2)
                gate.kind = Gate::AND;
            else if (kind == "XOR" && count == 2)
                gate.kind = Gate::XOR;
            else if (kind == "INV" && count == 1)
                gate.kind = Gate::INV;
            else
                driver::fail(path + ": a gate of an unknown kind");
            if (std::max({gate.a, gate.b, gate.out}) >= wires) driver::fail(path + ": a gate has an unknown wire");
        }
        if (ours == 0 || theirs == 0 || outputs == 0 || ours + theirs + outputs > wires)
            driver::fail(path + ": both parties need inputs, and one an output");
    }

    // `wire` begins with the inputs, and ends with the outputs.
    template <class Wire, class And, class Xor, class Inv>
    void run(std::vector<Wire> &wire, And &&both, Xor &&either, Inv &&inverse) const {
        for (const Gate &gate : gates) {
            if (gate.kind == Gate::AND)
                wire[gate.out] = both(wire[gate.a], wire[gate.b]);
            else if (gate.kind == Gate::XOR)
                wire[gate.out] = either(wire[gate.a], wire[gate.b]);
            else
                wire[gate.out] = inverse(wire[gate.a]);
        }
    }
};

struct Cost {
    double garbler, evaluator, wall, sent;
};

using Bits = std::unique_ptr<bool[]>;

Bits drawn(std::size_t count) {
    Bits bits(new bool[count]);
    emp::PRG().random_bool(bits.get(), (int64_t)count);
    return bits;
}

class Evaluation {
public:
    Evaluation(const Circuit &circuit, std::size_t instances)
        : circuit_(circuit),
          instances_(instances),
          x_(drawn(instances * circuit.ours)),
          y_(drawn(instances * circuit.theirs)),
          expected_(new bool[instances * circuit.outputs]),
          got_(new bool[instances * circuit.outputs]) {
        std::vector<char> wire(circuit.wires);
        for (std::size_t at = 0; at < instances; ++at) {
            std::copy_n(&x_[at * circuit.ours], circuit.ours, wire.begin());
            std::copy_n(&y_[at * circuit.theirs], circuit.theirs, wire.begin() + (std::ptrdiff_t)circuit.ours);
            circuit.run(
                wire, [](char a, char b) { return (char)(a & b); }, [](char a, char b) { return (char)(a ^ b); },
                [](char a) { return (char)!a; });
            std::copy_n(wire.end() - (std::ptrdiff_t)circuit.outputs, circuit.outputs, &expected_[at * circuit.outputs]);
        }
    }

    // One party's part, with a setup of its own.
    void run(emp::NetIO *io, int who) {
        const std::size_t piece = std::min(PIECE, instances_);
        emp::SH2PCSession session(io, who, (int)(piece * circuit_.theirs));
        auto &context = session.ctx();
        std::vector<block> wire(circuit_.wires), out;
        for (std::size_t done = 0; done < instances_; done += piece) {
            const std::size_t count = std::min(piece, instances_ - done);
            const auto x = session.input_bits(emp::ALICE, &x_[done * circuit_.ours], count * circuit_.ours);
            const auto y = session.input_bits(emp::BOB, &y_[done * circuit_.theirs], count * circuit_.theirs);
            out.clear();
            for (std::size_t at = 0; at < count; ++at) {
                std::copy_n(&x[at * circuit_.ours], circuit_.ours, wire.begin());
                std::copy_n(&y[at * circuit_.theirs], circuit_.theirs, wire.begin() + (std::ptrdiff_t)circuit_.ours);
                circuit_.run(
                    wire, [&](block a, block b) { return context.and_gate(a, b); },
                    [&](block a, block b) { return context.xor_gate(a, b); },
                    [&](block a) { return context.not_gate(a); });
                out.insert(out.end(), wire.end() - (std::ptrdiff_t)circuit_.outputs, wire.end());
            }
            session.reveal_bits(&got_[done * circuit_.outputs], emp::ALICE, out.data(), out.size());
        }
        io->flush();
    }

    block check() const {
        block checksum = emp::zero_block;
        for (std::size_t at = 0; at < instances_ * circuit_.outputs; ++at) {
            if (got_[at] != expected_[at]) driver::fail("an output is wrong");
            if (got_[at]) checksum = checksum ^ emp::makeBlock(at, ~at);
        }
        return checksum;
    }

private:
    const Circuit &circuit_;
    std::size_t instances_;
    Bits x_, y_, expected_, got_;
};

}  // namespace

int main(int count, char **arguments) {
    if (count != 4) driver::fail("usage: emp_circuit FILE INSTANCES TIMES");
    const Circuit circuit(arguments[1]);
    const std::size_t times = (std::size_t)driver::number(arguments[3]);
    Evaluation evaluation(circuit, (std::size_t)driver::number(arguments[2]));
    // Both processes write here.
    void *shared = mmap(nullptr, times * sizeof(Cost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) driver::fail("no memory that two processes share");
    Cost *costs = static_cast<Cost *>(shared);
    block checksum = emp::zero_block;
    const auto party = [&](emp::NetIO *io, int who) {
        for (std::size_t time = 0; time < times; ++time) {
            io->sync();
            const std::uint64_t before = io->send_counter + io->recv_counter;
            const double worked = driver::worked();
            const driver::Clock clock;
            evaluation.run(io, who);
            const double taken = driver::worked() - worked;
            if (who == emp::BOB) {
                costs[time].evaluator = taken;
                continue;
            }
            costs[time].garbler = taken;
            costs[time].wall = clock.seconds();
            costs[time].sent = (double)(io->send_counter + io->recv_counter - before);
            checksum = evaluation.check();
        }
    };
    driver::in_two_processes([&](emp::NetIO *io) { party(io, emp::ALICE); },
                             [&](emp::NetIO *io) { party(io, emp::BOB); });
    std::vector<driver::Measured> figures;
    for (const auto &[when, cost] : {std::pair("first", costs[0]), std::pair("last", costs[times - 1])}) {
        const std::string name(when);
        figures.insert(figures.end(), {{name + " garbler", "s", cost.garbler},
                                       {name + " evaluator", "s", cost.evaluator},
                                       {name + " wall", "s", cost.wall},
                                       {name + " sent", "B", cost.sent}});
    }
    driver::print("emp-sh2pc", checksum, figures);
    return 0;
}
