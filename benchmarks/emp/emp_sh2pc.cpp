// How fast emp-sh2pc evaluates between two processes, over plain TCP on loopback:
//
//     emp_sh2pc CIRCUIT INSTANCES
//
// CIRCUIT is less_u16 or mul64, one input of every instance from each party. Both parties get the outputs, which
// are checked. Seconds count from the open connection until both have the outputs ("total"), or from the end of
// the setup until then ("online"). Base transfers and the extension, for just as many bits as the evaluator puts
// in, are setup. All inputs go in at once and all outputs come out at once: one by one each would cost a round
// trip. "rate" is AND gates a second of "total", "sent" what both send.
// SPDX-License-Identifier: Apache-2.0
#include "channels.h"

#include "emp-sh2pc/emp-sh2pc.h"

using emp::block;

namespace {

using Session = emp::SH2PCSession;
using Context = Session::ctx_t;
using Wires = std::vector<block>;
using Bits = std::vector<char>;

std::uint64_t value(const Bits &bits, std::size_t at, std::size_t width) {
    std::uint64_t read = 0;
    for (std::size_t bit = 0; bit < width; ++bit) read |= (std::uint64_t)(bits[at + bit] & 1) << bit;
    return read;
}

void put(Bits &bits, std::uint64_t number, std::size_t width) {
    for (std::size_t bit = 0; bit < width; ++bit) bits.push_back((char)(number >> bit & 1));
}

struct LessU16 {
    static constexpr std::size_t width = 16;
    // The borrow of x - y alone: emp-tool's own comparison makes the difference as well.
    static void run(Context &context, const Wires &x, const Wires &y, Wires &out) {
        for (std::size_t at = 0; at < x.size(); at += width) {
            block borrow = context.and_gate(context.not_gate(x[at]), y[at]);
            for (std::size_t bit = at + 1; bit < at + width; ++bit) {
                const block a = context.xor_gate(context.not_gate(x[bit]), borrow);
                borrow = context.xor_gate(borrow, context.and_gate(a, context.xor_gate(y[bit], borrow)));
            }
            out.push_back(borrow);
        }
    }
    static void plain(const Bits &x, const Bits &y, Bits &out) {
        for (std::size_t at = 0; at < x.size(); at += width) put(out, value(x, at, width) < value(y, at, width), 1);
    }
};

using Number = emp::UInt_T<Context, 64>;

void append(Wires &out, const Number &number) {
    block wires[64];
    number.pack_wires(wires);
    out.insert(out.end(), wires, wires + 64);
}

struct Mul64 {
    static constexpr std::size_t width = 64;
    static void run(Context &context, const Wires &x, const Wires &y, Wires &out) {
        for (std::size_t at = 0; at < x.size(); at += width)
            append(out, Number::from_wires(context, &x[at]) * Number::from_wires(context, &y[at]));
    }
    static void plain(const Bits &x, const Bits &y, Bits &out) {
        for (std::size_t at = 0; at < x.size(); at += width) put(out, value(x, at, width) * value(y, at, width), width);
    }
};

template <class Circuit>
void measure(std::size_t instances) {
    const std::size_t bits = instances * Circuit::width;
    const std::unique_ptr<bool[]> drawn(new bool[2 * bits]);
    emp::PRG().random_bool(drawn.get(), (int64_t)(2 * bits));
    const Bits x(drawn.get(), drawn.get() + bits), y(drawn.get() + bits, drawn.get() + 2 * bits);
    Bits expected;
    Circuit::plain(x, y, expected);
    const std::unique_ptr<bool[]> got(new bool[expected.size()]);
    double setup = 0, total = 0, sent = 0, gates = 0;

    driver::in_two_processes([&](emp::NetIO *io, int who) {
        const std::uint64_t before = io->send_counter + io->recv_counter;
        const driver::Clock clock;
        Session session(io, who, (int)bits);
        io->flush();
        setup = clock.seconds();
        const Wires mine = session.input_bits(emp::ALICE, drawn.get(), bits);
        const Wires theirs = session.input_bits(emp::BOB, drawn.get() + bits, bits);
        Wires out;
        out.reserve(expected.size());
        Circuit::run(session.ctx(), mine, theirs, out);
        session.reveal_bits(got.get(), emp::PUBLIC, out.data(), out.size());
        io->flush();
        total = clock.seconds();
        sent = (double)(io->send_counter + io->recv_counter - before);
        gates = (double)session.num_and();
        if (out.size() != expected.size() || !std::equal(expected.begin(), expected.end(), got.get()))
            driver::fail("an output is wrong");
    });
    block checksum = emp::zero_block;
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (got[i]) checksum = checksum ^ emp::makeBlock(i, ~i);
    driver::print("emp-sh2pc", checksum,
                  {{"total", "s", total},
                   {"online", "s", total - setup},
                   {"sent", "B", sent},
                   {"rate", "AND/s", gates / total}});
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 3) driver::fail("usage: emp_sh2pc CIRCUIT INSTANCES");
    const std::string circuit = arguments[1];
    const std::size_t instances = (std::size_t)driver::number(arguments[2]);
    if (circuit == "less_u16")
        measure<LessU16>(instances);
    else if (circuit == "mul64")
        measure<Mul64>(instances);
    else
        driver::fail(circuit + ": no such circuit");
    return 0;
}
