// How many AND gates a second emp-tool garbles and evaluates, in memory, on one thread:
//
//     emp_garbling CIRCUIT INSTANCES KEYS REPEATS
//
// CIRCUIT is less_u64 or aes128. KEYS is "unique" (a key for each hash: MITCCRH with ReuseShift 0) or "default"
// (what emp-tool does unless told otherwise). Each repetition draws a new offset, makes the input labels, writes
// all tables into one buffer and evaluates them out of it; every output is checked. The medians are printed.
// Where the instances are a multiple of eight, eight go abreast, gate by gate: the processor overlaps independent
// gates, and evaluates up to 1.4 times as fast as one instance after the other.
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "driver.h"

#include "emp-tool/circuits/crypto/aes128.h"
#include "emp-tool/circuits/typed.h"

using emp::block;

namespace {

// One wire of `Lanes` instances.
template <int Lanes>
struct Labels {
    block of[Lanes];
};

template <class Hash, int Lanes>
struct Garbler {
    using Wire = Labels<Lanes>;
    block delta{}, constants[2]{};
    Hash *hash = nullptr;
    block *table = nullptr;

    Wire public_bit(bool bit) {
        Wire out;
        for (block &label : out.of) label = constants[bit];
        return out;
    }
    Wire xor_gate(const Wire &a, const Wire &b) {
        Wire out;
        for (int lane = 0; lane < Lanes; ++lane) out.of[lane] = a.of[lane] ^ b.of[lane];
        return out;
    }
    Wire not_gate(const Wire &a) {
        Wire out;
        for (int lane = 0; lane < Lanes; ++lane) out.of[lane] = a.of[lane] ^ delta;
        return out;
    }
    Wire and_gate(const Wire &a, const Wire &b) {
        Wire out;
        for (int lane = 0; lane < Lanes; ++lane, table += 2) {
            const block x = a.of[lane], y = b.of[lane];
            out.of[lane] = emp::halfgates_garble(x, x ^ delta, y, y ^ delta, delta, table, hash);
        }
        return out;
    }
};

template <class Hash, int Lanes>
struct Evaluator {
    using Wire = Labels<Lanes>;
    block constants[2]{};
    Hash *hash = nullptr;
    const block *table = nullptr;

    Wire public_bit(bool bit) {
        Wire out;
        for (block &label : out.of) label = constants[bit];
        return out;
    }
    Wire xor_gate(const Wire &a, const Wire &b) {
        Wire out;
        for (int lane = 0; lane < Lanes; ++lane) out.of[lane] = a.of[lane] ^ b.of[lane];
        return out;
    }
    Wire not_gate(const Wire &a) { return a; }
    Wire and_gate(const Wire &a, const Wire &b) {
        Wire out;
        for (int lane = 0; lane < Lanes; ++lane, table += 2)
            out.of[lane] = emp::halfgates_eval(a.of[lane], b.of[lane], table, hash);
        return out;
    }
};

struct Plain {
    using Wire = unsigned char;
    std::size_t ands = 0;

    Wire public_bit(bool bit) { return bit; }
    Wire xor_gate(Wire a, Wire b) { return a ^ b; }
    Wire not_gate(Wire a) { return a ^ 1; }
    Wire and_gate(Wire a, Wire b) {
        ++ands;
        return a & b;
    }
};

// The borrow of x - y alone: emp-tool's own comparison makes the difference as well.
struct LessU64 {
    static constexpr std::size_t inputs = 128, outputs = 1;
    template <class Context>
    static void run(Context &context, const typename Context::Wire *in, typename Context::Wire *out) {
        auto borrow = context.and_gate(context.not_gate(in[0]), in[64]);
        for (int bit = 1; bit < 64; ++bit) {
            const auto x = context.not_gate(in[bit]), y = in[64 + bit];
            borrow = context.xor_gate(
                borrow, context.and_gate(context.xor_gate(x, borrow), context.xor_gate(y, borrow)));
        }
        out[0] = borrow;
    }
};

struct Aes128 {
    static constexpr std::size_t inputs = 256, outputs = 128;
    template <class Context>
    static void run(Context &context, const typename Context::Wire *in, typename Context::Wire *out) {
        using Block = emp::BitVec_T<Context, 128>;
        emp::circuit::crypto::aes128_encrypt(context, Block::from_wires(context, in),
                                             Block::from_wires(context, in + 128))
            .pack_wires(out);
    }
};

struct Seconds {
    double garble, evaluate;
};

template <class Circuit, class Hash, int Lanes>
class Bench {
public:
    explicit Bench(std::size_t instances)
        : groups_(instances / Lanes), bits_(new bool[instances * Circuit::inputs]) {
        emp::PRG().random_bool(bits_.get(), (int64_t)(instances * Circuit::inputs));
        for (std::size_t i = 0; i < instances; ++i) {
            unsigned char in[Circuit::inputs], out[Circuit::outputs];
            for (std::size_t wire = 0; wire < Circuit::inputs; ++wire) in[wire] = bit(i, wire);
            Plain plain;
            Circuit::run(plain, in, out);
            gates_ = plain.ands * instances;
            expected_.insert(expected_.end(), out, out + Circuit::outputs);
        }
        tables_.assign(2 * gates_, emp::all_one_block);
        active_.resize(groups_ * Circuit::inputs);
        zeros_.resize(groups_ * Circuit::outputs);
        results_.resize(groups_ * Circuit::outputs);
    }

    std::size_t gates() const { return gates_; }

    // Garbles and evaluates once, and adds all output labels to `checksum`.
    Seconds once(block &checksum) {
        block drawn[3];
        emp::PRG().random_block(drawn, 3);
        const block delta = drawn[0] | emp::makeBlock(0, 1), start = drawn[1], seed = drawn[2];
        Seconds seconds{};
        Garbler<Hash, Lanes> garbler;
        {
            const driver::Clock clock;
            Hash hash;
            hash.setS(start);
            emp::PRG prg(&seed);
            prg.random_block(garbler.constants, 1);
            garbler.constants[1] = garbler.constants[0] ^ delta;
            garbler.delta = delta;
            garbler.hash = &hash;
            garbler.table = tables_.data();
            for (std::size_t group = 0; group < groups_; ++group) {
                Wire in[Circuit::inputs];
                prg.random_block(in[0].of, Lanes * Circuit::inputs);
                Circuit::run(garbler, in, &zeros_[group * Circuit::outputs]);
            }
            seconds.garble = clock.seconds();
        }
        encode(seed, delta);
        {
            const driver::Clock clock;
            Hash hash;
            hash.setS(start);
            Evaluator<Hash, Lanes> evaluator;
            std::copy_n(garbler.constants, 2, evaluator.constants);
            evaluator.hash = &hash;
            evaluator.table = tables_.data();
            for (std::size_t group = 0; group < groups_; ++group)
                Circuit::run(evaluator, &active_[group * Circuit::inputs], &results_[group * Circuit::outputs]);
            seconds.evaluate = clock.seconds();
        }
        check(delta, checksum);
        return seconds;
    }

private:
    using Wire = Labels<Lanes>;

    bool bit(std::size_t instance, std::size_t wire) const { return bits_[instance * Circuit::inputs + wire]; }

    // Makes the active input labels, from the labels that garbling draws from `seed`.
    void encode(block seed, block delta) {
        emp::PRG prg(&seed);
        block constant;
        prg.random_block(&constant, 1);
        for (std::size_t group = 0; group < groups_; ++group) {
            Wire *in = &active_[group * Circuit::inputs];
            prg.random_block(in[0].of, Lanes * Circuit::inputs);
            for (std::size_t wire = 0; wire < Circuit::inputs; ++wire)
                for (int lane = 0; lane < Lanes; ++lane)
                    if (bit(group * Lanes + (std::size_t)lane, wire)) in[wire].of[lane] = in[wire].of[lane] ^ delta;
        }
    }

    void check(block delta, block &checksum) const {
        for (std::size_t group = 0; group < groups_; ++group)
            for (std::size_t wire = 0; wire < Circuit::outputs; ++wire)
                for (int lane = 0; lane < Lanes; ++lane) {
                    const std::size_t instance = group * Lanes + (std::size_t)lane;
                    const bool one = expected_[instance * Circuit::outputs + wire];
                    const std::size_t at = group * Circuit::outputs + wire;
                    const block right = zeros_[at].of[lane] ^ (one ? delta : emp::zero_block);
                    if (!emp::cmpBlock(&results_[at].of[lane], &right, 1)) driver::fail("an output label is wrong");
                    checksum = checksum ^ results_[at].of[lane];
                }
    }

    std::size_t groups_, gates_ = 0;
    std::unique_ptr<bool[]> bits_;
    std::vector<unsigned char> expected_;
    emp::BlockVec tables_;
    std::vector<Wire> active_, zeros_, results_;
};

template <class Circuit, class Hash, int Lanes>
void measure(std::size_t instances, long repeats) {
    Bench<Circuit, Hash, Lanes> bench(instances);
    block checksum = emp::zero_block;
    bench.once(checksum);
    std::vector<double> garble, evaluate;
    for (long repeat = 0; repeat < repeats; ++repeat) {
        const Seconds seconds = bench.once(checksum);
        garble.push_back((double)bench.gates() / seconds.garble);
        evaluate.push_back((double)bench.gates() / seconds.evaluate);
    }
    driver::print("emp-tool", checksum,
                  {{"garble", "AND/s", driver::median(garble)}, {"evaluate", "AND/s", driver::median(evaluate)}});
}

template <class Circuit, class Hash>
void abreast(std::size_t instances, long repeats) {
    if (instances % 8 == 0)
        measure<Circuit, Hash, 8>(instances, repeats);
    else
        measure<Circuit, Hash, 1>(instances, repeats);
}

// Half-gates need a hash that is circular correlation robust, E(sigma(x)) xor sigma(x) with sigma a linear
// orthomorphism [Guo, Katz, Wang, Yu 2020]; older ones leave sigma out, which is faster and leaks the offset.
template <class Hash>
void check_hash() {
    block drawn[2], got[4];
    emp::PRG().random_block(drawn, 2);
    Hash hash;
    hash.setS(drawn[0]);
    const block in[4] = {drawn[1], drawn[1], drawn[1], drawn[1]};
    hash.template hash_cir<2, 2>(got, in);
    std::uint64_t halves[2];
    std::memcpy(halves, &drawn[1], sizeof halves);
    const block sigma = emp::makeBlock(halves[0] ^ halves[1], halves[1]);
    block right = sigma;
    emp::PRP(drawn[0]).permute_block(&right, 1);
    right = right ^ sigma;
    if (!emp::cmpBlock(got, &right, 1)) driver::fail("the hash is not E(sigma(x)) xor sigma(x)");
}

template <class Hash>
void choose(const std::string &circuit, std::size_t instances, long repeats) {
    check_hash<Hash>();
    if (circuit == "less_u64")
        abreast<LessU64, Hash>(instances, repeats);
    else if (circuit == "aes128")
        abreast<Aes128, Hash>(instances, repeats);
    else
        driver::fail(circuit + ": no such circuit");
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 5) driver::fail("usage: emp_garbling CIRCUIT INSTANCES KEYS REPEATS");
    const std::string circuit = arguments[1], keys = arguments[3];
    const std::size_t instances = (std::size_t)driver::number(arguments[2]);
    const long repeats = driver::number(arguments[4]);
    if (keys == "unique")
        choose<emp::MITCCRH<8, 0>>(circuit, instances, repeats);
    else if (keys == "default")
        choose<emp::MITCCRH<8>>(circuit, instances, repeats);
    else
        driver::fail(keys + ": neither \"unique\" nor \"default\"");
    return 0;
}
