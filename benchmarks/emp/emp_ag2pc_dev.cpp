// What it costs emp-ag2pc's development branch to evaluate a circuit in Bristol Fashion between two processes, over
// plain TCP on loopback:
//
//     emp_ag2pc_dev FILE INSTANCES TIMES
//
// The garbler gives the first half of the input values and the evaluator the others; both get the outputs, which the
// garbler checks. All is done TIMES times, each time with a new setup. Figures are those of `emp_circuit`, but for
// "wall": before its second connection emp waits 100 ms. All instances are one circuit, and all inputs go in at once.
// A connection that emp makes itself is at the port that the first one had, which emp opens on all interfaces.
// SPDX-License-Identifier: Apache-2.0
#include "bristol.h"
#include "channels.h"

#include "emp-ag2pc/emp-ag2pc.h"

namespace {

// Threads of emp's protocol: it has two at work at a time.
constexpr std::size_t THREADS = 2;

std::vector<std::uint8_t> bytes(const bool *bits, std::size_t count) { return {bits, bits + count}; }

// One party's part; returns the bytes that it has sent.
std::uint64_t evaluate(const driver::Instances &instances, emp::NetIO *io, int who) {
    using Ids = std::vector<std::uint32_t>;
    const driver::Circuit &circuit = instances.circuit;
    const std::size_t ours = instances.count * circuit.ours, theirs = instances.count * circuit.theirs;
    const std::uint64_t before = io->send_counter;
    ThreadPool pool(THREADS);
    AG2PCProtocol protocol(io, &pool, who);
    emp::AG2PCEngine engine{&protocol};
    std::vector<emp::SecureWires> given = protocol.process_inputs(
        {emp::ALICE, emp::BOB}, {bytes(instances.x.get(), ours), bytes(instances.y.get(), theirs)});
    emp::SecureWires inputs = std::move(given[0]);
    emp::ag2pc_detail::append_bundle(inputs, given[1]);
    // Each pass runs the gates, over numbers of wires.
    const auto gates = [&](auto &pass) {
        Ids wire(circuit.wires), out;
        for (std::size_t at = 0; at < instances.count; ++at) {
            const auto first = wire.begin(), second = first + (std::ptrdiff_t)circuit.ours;
            std::iota(first, second, (std::uint32_t)(at * circuit.ours));
            std::iota(second, second + (std::ptrdiff_t)circuit.theirs, (std::uint32_t)(ours + at * circuit.theirs));
            circuit.run(
                wire, [&](auto a, auto b) { return pass.and_gate(a, b); },
                [&](auto a, auto b) { return pass.xor_gate(a, b); }, [&](auto a) { return pass.not_gate(a); });
            out.insert(out.end(), wire.end() - (std::ptrdiff_t)circuit.outputs, wire.end());
        }
        return out;
    };
    const std::vector<std::uint8_t> got =
        protocol.decode(engine.run_source(inputs, gates), emp::PUBLIC);
    std::transform(got.begin(), got.end(), instances.got.get(), [](std::uint8_t bit) { return bit != 0; });
    io->flush();
    return io->send_counter - before + protocol.sib->send_counter;
}

}  // namespace

int main(int count, char **arguments) {
    driver::Evaluations all(count, arguments);
    if (all.instances.count * all.circuit.wires > INT32_MAX) driver::fail("too many wires for emp's numbers");
    driver::in_two_processes([&](emp::NetIO *io, int who) {
        const auto ready = [&] {
            io->sync();
            io->flush();
        };
        all.take_part(who, ready, [&] { return evaluate(all.instances, io, who); });
    });
    all.print("emp-ag2pc-dev");
    return 0;
}
