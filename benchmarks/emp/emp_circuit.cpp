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
#include "bristol.h"
#include "channels.h"

#include "emp-sh2pc/emp-sh2pc.h"

using emp::block;

namespace {

// Labels of so many instances stay in the cache.
constexpr std::size_t PIECE = 256;

// One party's part, with a setup of its own; returns the bytes that it has sent.
std::uint64_t evaluate(const driver::Instances &instances, emp::NetIO *io, int who) {
    const std::uint64_t before = io->send_counter;
    const driver::Circuit &circuit = instances.circuit;
    const std::size_t piece = std::min(PIECE, instances.count);
    emp::SH2PCSession session(io, who, (int)(piece * circuit.theirs));
    auto &context = session.ctx();
    std::vector<block> wire(circuit.wires), out;
    for (std::size_t done = 0; done < instances.count; done += piece) {
        const std::size_t count = std::min(piece, instances.count - done);
        const auto x = session.input_bits(emp::ALICE, &instances.x[done * circuit.ours], count * circuit.ours);
        const auto y = session.input_bits(emp::BOB, &instances.y[done * circuit.theirs], count * circuit.theirs);
        out.clear();
        for (std::size_t at = 0; at < count; ++at) {
            std::copy_n(&x[at * circuit.ours], circuit.ours, wire.begin());
            std::copy_n(&y[at * circuit.theirs], circuit.theirs, wire.begin() + (std::ptrdiff_t)circuit.ours);
            circuit.run(
                wire, [&](block a, block b) { return context.and_gate(a, b); },
                [&](block a, block b) { return context.xor_gate(a, b); },
                [&](block a) { return context.not_gate(a); });
            out.insert(out.end(), wire.end() - (std::ptrdiff_t)circuit.outputs, wire.end());
        }
        session.reveal_bits(&instances.got[done * circuit.outputs], emp::ALICE, out.data(), out.size());
    }
    io->flush();
    return io->send_counter - before;
}

}  // namespace

int main(int count, char **arguments) {
    driver::Evaluations all(count, arguments);
    driver::in_two_processes([&](emp::NetIO *io, int who) {
        all.take_part(who, [&] { io->sync(); }, [&] { return evaluate(all.instances, io, who); });
    });
    all.print("emp-sh2pc");
    return 0;
}
