// What the drivers of circuits share: the command line FILE INSTANCES TIMES, a file in Bristol Fashion, inputs and
// right outputs of its instances, and what both processes spend.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <fstream>
#include <memory>
#include <numeric>

#include "driver.h"

namespace driver {

struct Gate {
    enum Kind { AND, XOR, INV } kind;
    std::size_t a, b, out;
};

struct Circuit {
    std::size_t wires = 0, ours = 0, theirs = 0, outputs = 0, ands = 0;
    std::vector<Gate> gates;

    explicit Circuit(const std::string &path) {
        std::ifstream file(path);
        const auto next = [&] {
            std::size_t read = 0;
            if (!(file >> read)) fail(path + ": not a circuit in Bristol Fashion");
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
            if (next() != 1 || count < 1 || count > 2) fail(path + ": a gate of an unknown kind");
            gate.a = next();
            gate.b = count == 2 ? next() : gate.a;
            gate.out = next();
            std::string kind;
            file >> kind;
            if (kind == "AND" && count == 2)
                gate.kind = Gate::AND, ++ands;
            else if (kind == "XOR" && count == 2)
                gate.kind = Gate::XOR;
            else if (kind == "INV" && count == 1)
                gate.kind = Gate::INV;
            else
                fail(path + ": a gate of an unknown kind");
            if (std::max({gate.a, gate.b, gate.out}) >= wires) fail(path + ": a gate has an unknown wire");
        }
        if (ours == 0 || theirs == 0 || outputs == 0 || ours + theirs + outputs > wires)
            fail(path + ": both parties need inputs, and one an output");
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

using Bits = std::unique_ptr<bool[]>;

// Random inputs of so many instances, the outputs that are right, and those that were computed. `x` is the garbler's
// half of the inputs and `y` the evaluator's.
class Instances {
public:
    Instances(const Circuit &circuit, std::size_t count)
        : circuit(circuit),
          count(count),
          x(drawn(count * circuit.ours)),
          y(drawn(count * circuit.theirs)),
          got(new bool[count * circuit.outputs]),
          expected_(new bool[count * circuit.outputs]) {
        std::vector<char> wire(circuit.wires);
        for (std::size_t at = 0; at < count; ++at) {
            std::copy_n(&x[at * circuit.ours], circuit.ours, wire.begin());
            std::copy_n(&y[at * circuit.theirs], circuit.theirs, wire.begin() + (std::ptrdiff_t)circuit.ours);
            circuit.run(
                wire, [](char a, char b) { return (char)(a & b); }, [](char a, char b) { return (char)(a ^ b); },
                [](char a) { return (char)!a; });
            std::copy_n(wire.end() - (std::ptrdiff_t)circuit.outputs, circuit.outputs, &expected_[at * circuit.outputs]);
        }
    }

    emp::block check() const {
        emp::block checksum = emp::zero_block;
        for (std::size_t at = 0; at < count * circuit.outputs; ++at) {
            if (got[at] != expected_[at]) fail("an output is wrong");
            if (got[at]) checksum = checksum ^ emp::makeBlock(at, ~at);
        }
        return checksum;
    }

    const Circuit &circuit;
    const std::size_t count;
    const Bits x, y, got;

private:
    static Bits drawn(std::size_t count) {
        Bits bits(new bool[count]);
        emp::PRG().random_bool(bits.get(), (int64_t)count);
        return bits;
    }

    const Bits expected_;
};

// What the two processes spend for each of so many evaluations. They share the memory in which it stands.
class Costs {
public:
    explicit Costs(std::size_t times) : times_(times) {
        void *shared = mmap(nullptr, times * sizeof(Cost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) fail("no memory that two processes share");
        costs_ = static_cast<Cost *>(shared);
    }

    // Measures one side of an evaluation; `run` returns the bytes that this side has sent.
    template <class Run>
    void measure(std::size_t time, bool garbler, Run &&run) {
        const double before = worked();
        const Clock clock;
        const double sent = (double)run();
        costs_[time].sides[garbler ? 0 : 1] = {worked() - before, clock.seconds(), sent};
    }

    // Of the first and the last evaluation, each times `share`: "wall" is the garbler's clock.
    std::vector<Measured> figures(double share = 1) const {
        std::vector<Measured> figures;
        for (const auto &[when, cost] : {std::pair("first", costs_[0]), std::pair("last", costs_[times_ - 1])}) {
            const std::string name(when);
            const Side &garbler = cost.sides[0], &evaluator = cost.sides[1];
            figures.insert(figures.end(), {{name + " garbler", "s", share * garbler.worked},
                                           {name + " evaluator", "s", share * evaluator.worked},
                                           {name + " wall", "s", share * garbler.wall},
                                           {name + " sent", "B", share * (garbler.sent + evaluator.sent)}});
        }
        return figures;
    }

private:
    struct Side {
        double worked, wall, sent;
    };
    struct Cost {
        Side sides[2];
    };

    std::size_t times_;
    Cost *costs_;
};

// The evaluations that a command line FILE INSTANCES TIMES asks for: TIMES times all instances of the circuit.
class Evaluations {
public:
    const Circuit circuit;
    const Instances instances;
    const std::size_t times;

    Evaluations(int count, char **arguments)
        : circuit(file(count, arguments)),
          instances(circuit, (std::size_t)number(arguments[2])),
          times((std::size_t)number(arguments[3])),
          costs_(times) {}

    // One party's part of all evaluations: each time `ready` before the clocks start, then `run`, which returns the
    // bytes that this party has sent. The garbler, emp::ALICE, checks the outputs.
    template <class Ready, class Run>
    void take_part(int who, Ready &&ready, Run &&run) {
        for (std::size_t time = 0; time < times; ++time) {
            ready();
            costs_.measure(time, who == emp::ALICE, run);
            if (who == emp::ALICE) checksum_ = instances.check();
        }
    }

    // Prints the figures, each times `share`, in the process of the garbler.
    void print(const char *peer, double share = 1) const { driver::print(peer, checksum_, costs_.figures(share)); }

private:
    static const char *file(int count, char **arguments) {
        if (count != 4) fail(std::string("usage: ") + arguments[0] + " FILE INSTANCES TIMES");
        return arguments[1];
    }

    Costs costs_;
    emp::block checksum_ = emp::zero_block;
};

}  // namespace driver
