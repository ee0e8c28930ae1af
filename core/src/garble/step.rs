//! The steps of a compiled circuit.

/// One step of a compiled circuit; operands are slots unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load input `input` into `out`.
    Input {
        input: u32,
        out: u32,
    },
    /// Load every input, in order, into the first slots.
    Inputs,
    Xor {
        a: u32,
        b: u32,
        out: u32,
    },
    And {
        a: u32,
        b: u32,
        out: u32,
        index: u32,
    },
    /// XOR gates of one instance: a range of the program's.
    Xors {
        first: u32,
        end: u32,
    },
    /// AND gates of one instance, independent of each other: a range of the program's.
    Ands {
        first: u32,
        end: u32,
    },
    Not {
        a: u32,
        out: u32,
    },
    Constant {
        value: bool,
        out: u32,
    },
    /// Store `a` as output `output`.
    Output {
        a: u32,
        output: u32,
    },
}
