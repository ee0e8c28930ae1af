// What it costs emp-ag2pc 0.3.0 to evaluate a circuit in Bristol Fashion between two processes, over plain TCP on
// loopback:
//
//     emp_ag2pc FILE INSTANCES TIMES
//
// The garbler gives the first half of the input values and the evaluator the others; both get the outputs, which the
// garbler checks. All is done TIMES times, each time with a new setup. Figures are those of `emp_circuit`.
//
// Instances are evaluated in pieces, each with a setup of its own: `refill` makes all triples of a circuit of fewer
// than 3,100 AND gates, of 3,100 and of 280,000; of any other it makes the first 3,100 or 280,000, and the others are
// memory that it does not write. From 3,100 gates on a piece has 3,100, from 140,000 on 280,000: it is filled with
// gates that nobody needs, and a figure is the share of the AND gates that are needed.
//
// Its connections stand before the processes part: NetIO listens anew for each of them, and loses one that is made
// before the listener of the one before has been closed.
// SPDX-License-Identifier: Apache-2.0
#include <netinet/tcp.h>

#include <deque>
#include <iostream>

#include "bristol.h"

#include "emp-ag2pc/emp-ag2pc.h"

namespace {

// Circuits of so many AND gates have all their triples, larger ones first.
constexpr std::size_t FULL[] = {280000, 3100};

// A channel that takes the next of the connected sockets. `Fpre` makes two more as it was made itself.
class Channel : public emp::IOChannel<Channel> {
public:
    static std::deque<int> sockets;

    const bool is_server = false;
    const std::string addr;
    const int port = 0;

    Channel(const char *, int, bool) : out_(PIECE), in_(PIECE) {
        if (sockets.empty()) driver::fail("more connections than planned");
        end_ = sockets.front();
        sockets.pop_front();
        const int now = 1;
        setsockopt(end_, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    }
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;
    ~Channel() {
        flush();
        close(end_);
    }

    void send_data_internal(const void *data, std::size_t length) {
        const char *from = static_cast<const char *>(data);
        while (length > 0) {
            const std::size_t taken = std::min(length, PIECE - filled_);
            std::memcpy(out_.data() + filled_, from, taken);
            filled_ += taken;
            from += taken;
            length -= taken;
            if (filled_ == PIECE) flush();
        }
    }

    void recv_data_internal(void *data, std::size_t length) {
        flush();
        char *to = static_cast<char *>(data);
        while (length > 0) {
            if (read_ == received_) {
                const ssize_t came = recv(end_, in_.data(), PIECE, 0);
                if (came <= 0) driver::fail("the connection was lost");
                received_ = (std::size_t)came;
                read_ = 0;
            }
            const std::size_t taken = std::min(length, received_ - read_);
            std::memcpy(to, in_.data() + read_, taken);
            read_ += taken;
            to += taken;
            length -= taken;
        }
    }

    void flush() {
        for (std::size_t sent = 0; sent < filled_;) {
            const ssize_t gone = send(end_, out_.data() + sent, filled_ - sent, MSG_NOSIGNAL);
            if (gone <= 0) driver::fail("the connection was lost");
            sent += (std::size_t)gone;
        }
        filled_ = 0;
    }

private:
    // As much as NetIO holds back.
    static constexpr std::size_t PIECE = 1 << 20;

    int end_;
    std::vector<char> out_, in_;
    std::size_t filled_ = 0, read_ = 0, received_ = 0;
};

std::deque<int> Channel::sockets;

// Instances of a circuit side by side, as one circuit of emp: the evaluator's inputs, the garbler's, other wires, and
// the outputs. Gates that nobody needs come last.
class Piece {
public:
    Piece(const driver::Circuit &circuit, std::size_t count, std::size_t ands) {
        const std::size_t spare = ands - count * circuit.ands;
        const std::size_t inner = circuit.wires - circuit.ours - circuit.theirs - circuit.outputs;
        const std::size_t given = circuit.ours + circuit.theirs;
        const auto place = [&](std::size_t wire, std::size_t at) {
            if (wire < circuit.ours) return count * circuit.theirs + at * circuit.ours + wire;
            if (wire < given) return at * circuit.theirs + wire - circuit.ours;
            if (wire < given + inner) return count * given + at * inner + wire - given;
            return count * (given + inner) + spare + at * circuit.outputs + wire - given - inner;
        };
        const std::size_t gates = count * circuit.gates.size() + spare, wires = count * circuit.wires + spare;
        if (4 * std::max(gates, wires) > INT32_MAX) driver::fail("too many gates for emp's numbers");
        std::vector<int> listed;
        listed.reserve(4 * gates);
        const auto list = [&](std::size_t a, std::size_t b, std::size_t out, int kind) {
            listed.insert(listed.end(), {(int)a, (int)b, (int)out, kind});
        };
        for (std::size_t at = 0; at < count; ++at)
            for (const driver::Gate &gate : circuit.gates)
                list(place(gate.a, at), place(gate.b, at), place(gate.out, at), kind(gate));
        for (std::size_t at = 0; at < spare; ++at) list(0, 1, count * (given + inner) + at, AND_GATE);
        format_ = std::make_unique<emp::BristolFormat>((int)gates, (int)wires, (int)(count * circuit.theirs),
                                                       (int)(count * circuit.ours), (int)(count * circuit.outputs),
                                                       listed.data());
    }

    emp::BristolFormat *format() const { return format_.get(); }

private:
    static int kind(const driver::Gate &gate) {
        if (gate.kind == driver::Gate::AND) return AND_GATE;
        return gate.kind == driver::Gate::XOR ? XOR_GATE : NOT_GATE;
    }

    std::unique_ptr<emp::BristolFormat> format_;
};

// How many instances go through at once, with how many AND gates.
struct Plan {
    std::size_t instances, ands, pieces;

    Plan(const driver::Circuit &circuit, std::size_t count) : instances(count), ands(count * circuit.ands), pieces(1) {
        if (ands < FULL[1]) return;
        const std::size_t full = 2 * ands < FULL[0] ? FULL[1] : FULL[0];
        if (circuit.ands > full) driver::fail("one instance has more AND gates than emp makes triples for");
        ands = full;
        instances = std::min(count, full / circuit.ands);
        pieces = (count + instances - 1) / instances;
    }
};

// One party's part of all pieces; returns the bytes that it has sent.
std::uint64_t evaluate(const driver::Instances &instances, const Plan &plan, const Piece &whole, const Piece &last,
                       Channel *io, int who) {
    const driver::Circuit &circuit = instances.circuit;
    const std::uint64_t before = io->counter;
    std::uint64_t sent = 0;
    for (std::size_t done = 0; done < instances.count; done += plan.instances) {
        const std::size_t count = std::min(plan.instances, instances.count - done);
        const std::size_t ours = count * circuit.ours, theirs = count * circuit.theirs;
        const driver::Bits inputs(new bool[ours + theirs]);
        std::copy_n(&instances.y[done * circuit.theirs], theirs, inputs.get());
        std::copy_n(&instances.x[done * circuit.ours], ours, inputs.get() + theirs);
        emp::C2PC<Channel> both(io, who, (count == plan.instances ? whole : last).format());
        both.function_independent();
        both.function_dependent();
        both.online(inputs.get(), &instances.got[done * circuit.outputs], true);
        io->flush();
        sent += both.fpre->io[0]->counter + both.fpre->io2[0]->counter;
    }
    return sent + io->counter - before;
}

}  // namespace

int main(int count, char **arguments) {
    driver::Evaluations all(count, arguments);
    const driver::Circuit &circuit = all.circuit;
    const Plan plan(circuit, all.instances.count);
    const std::size_t rest = all.instances.count - (plan.pieces - 1) * plan.instances;
    const Piece whole(circuit, plan.instances, plan.ands), last(circuit, rest, plan.ands);
    // emp writes its times there.
    std::cout.setstate(std::ios::failbit);
    const driver::Connections connections(1 + 2 * all.times * plan.pieces);
    driver::in_two_processes(connections, [&](const std::vector<int> &ends, int who) {
        Channel::sockets.assign(ends.begin(), ends.end());
        Channel io(nullptr, 0, true);
        all.take_part(who, [] {}, [&] { return evaluate(all.instances, plan, whole, last, &io, who); });
    });
    all.print("emp-ag2pc", (double)(all.instances.count * circuit.ands) / (double)(plan.ands * plan.pieces));
    return 0;
}
