//! Punctured trees: from base keys to all-but-one sharing of 2^k stream keys, with its check.
//!
//! A GGM tree of depth k for each of 128 / k digits of the correlation. Its two top nodes are the
//! keys of the digit's first base transfer; every further level costs one correction of two blocks. The
//! check (a sum of check strings and the hash of all of them) makes a wrong correction either
//! harmless or an abort that depends on the corresponding bits of the correlation alone
//! [Roy: SoftSpokenOT, CRYPTO 2022;
//! Boyle et al., CCS 2019]. A path takes a digit's bits from the top: bit k - 1 first.

use zeroize::Zeroizing;

use super::base::{Key, KeyPairs, Keys};
use super::error::{OtError, expect_length};
use super::hash::{finish, start};
use super::labels;
use super::row::KAPPA;
use crate::tuple_hash::TupleHash256;

/// Bytes of a leaf's check string and of a tree's hash.
const CHECK: usize = 32;

/// Stream keys, 2^k for each digit.
pub type Leaves = Zeroizing<Vec<Key>>;

/// Returns the bytes of the corrections of one digit.
fn digit_length(k: usize) -> usize {
    (k - 1) * 32 + 2 * CHECK
}

/// Returns the bytes of the message with all corrections.
pub fn message_length(k: usize) -> usize {
    KAPPA / k * digit_length(k)
}

fn xor<const N: usize>(left: &mut [u8; N], right: &[u8; N]) {
    for (byte, other) in left.iter_mut().zip(right) {
        *byte ^= other;
    }
}

/// Returns `value` where `mask` is 0xff, zeros where it is 0.
fn masked<const N: usize>(value: &[u8; N], mask: u8) -> [u8; N] {
    value.map(|byte| byte & mask)
}

/// Returns 0xff if `left == right`, else 0; both below 256.
fn equal_mask(left: usize, right: usize) -> u8 {
    ((((left ^ right) as u32).wrapping_sub(1)) >> 24) as u8
}

/// Hashes of one setup's trees, with the context absorbed.
struct Hashes {
    tree: TupleHash256,
    leaf: TupleHash256,
    check: TupleHash256,
}

impl Hashes {
    fn new(context: &[u8; 32]) -> Self {
        let start = |label| start(label, &[context]);
        Self {
            tree: start(labels::TREE),
            leaf: start(labels::LEAF),
            check: start(labels::TREE_CHECK),
        }
    }

    /// Returns the nodes one level below `nodes`.
    fn grow(&self, digit: usize, level: usize, nodes: &[Key]) -> Vec<Key> {
        let mut children = Vec::with_capacity(2 * nodes.len());
        for (number, node) in nodes.iter().enumerate() {
            let index = [digit as u8, level as u8, number as u8];
            let pair = Zeroizing::new(finish::<32>(self.tree.clone(), &[&index, node]));
            let (pair, _) = pair.as_chunks::<16>();
            children.extend_from_slice(pair);
        }
        children
    }

    /// Returns a leaf's stream key and its check string.
    fn finish_leaf(&self, digit: usize, number: usize, node: &Key) -> (Key, [u8; CHECK]) {
        let index = [digit as u8, number as u8];
        let bytes = Zeroizing::new(finish::<48>(self.leaf.clone(), &[&index, node]));
        let (key, check) = bytes.split_first_chunk().expect("16 of 48 bytes");
        (*key, *check.first_chunk().expect("the other 32 bytes"))
    }

    fn checks(&self, digit: usize, checks: &[[u8; CHECK]]) -> [u8; CHECK] {
        let parts: [&[u8]; 2] = [&[digit as u8], checks.as_flattened()];
        finish(self.check.clone(), &parts)
    }
}

/// Returns all leaves of all digits, and the corrections to send: the side with both base keys.
pub fn plant(context: &[u8; 32], k: usize, base: &KeyPairs) -> (Leaves, Vec<u8>) {
    let hashes = Hashes::new(context);
    let mut leaves = Zeroizing::new(Vec::with_capacity((KAPPA / k) << k));
    let mut message = Vec::with_capacity(message_length(k));
    for (digit, keys) in base.chunks_exact(k).enumerate() {
        let mut nodes = Zeroizing::new(keys[0].to_vec());
        for (level, pair) in keys.iter().enumerate().skip(1) {
            nodes = Zeroizing::new(hashes.grow(digit, level, &nodes));
            let mut corrections = *pair;
            for (number, node) in nodes.iter().enumerate() {
                xor(&mut corrections[number % 2], node);
            }
            message.extend_from_slice(corrections.as_flattened());
        }
        let mut checks = Zeroizing::new(Vec::with_capacity(1 << k));
        let mut sum = [0; CHECK];
        for (number, node) in nodes.iter().enumerate() {
            let (key, check) = hashes.finish_leaf(digit, number, node);
            xor(&mut sum, &check);
            leaves.push(key);
            checks.push(check);
        }
        message.extend_from_slice(&sum);
        message.extend_from_slice(&hashes.checks(digit, &checks));
    }
    (leaves, message)
}

/// Returns the choice bits of the base transfers for the correlation `delta`: each digit's path,
/// inverted.
pub fn base_choices(k: usize, delta: &[u8; 16]) -> [u8; KAPPA] {
    std::array::from_fn(|number| {
        let column = number / k * k + (k - 1 - number % k);
        1 ^ (delta[column / 8] >> (column % 8) & 1)
    })
}

/// Returns digit number `digit` of `delta`.
fn digit_of(k: usize, delta: &[u8; 16], digit: usize) -> usize {
    let column = digit * k;
    usize::from(delta[column / 8] >> (column % 8)) & ((1 << k) - 1)
}

/// Returns all leaves but the one at each digit of `delta`, in the order of their distance from it.
///
/// Slot z of a digit d is leaf d xor z; slot 0 is zeros. Memory accesses and branches do not depend
/// on `delta`, up to the one bit whether all checks hold.
pub fn puncture(
    context: &[u8; 32],
    k: usize,
    delta: &[u8; 16],
    base: &Keys,
    message: &[u8],
) -> Result<Leaves, OtError> {
    expect_length("tree corrections", message, message_length(k))?;
    let hashes = Hashes::new(context);
    let mut slots = Zeroizing::new(Vec::with_capacity((KAPPA / k) << k));
    let mut difference = 0;
    let corrections = message.chunks_exact(digit_length(k));
    for (digit, (keys, corrections)) in base.chunks_exact(k).zip(corrections).enumerate() {
        let point = digit_of(k, delta, digit);
        let (levels, checks) = corrections.split_at((k - 1) * 32);
        let (levels, _) = levels.as_chunks::<32>();
        let mut nodes = Zeroizing::new(vec![[0; 16]; 1]);
        for (level, key) in keys.iter().enumerate() {
            let path = point >> (k - 1 - level);
            let sibling = path ^ 1;
            let mut known = Zeroizing::new(*key);
            if level == 0 {
                nodes = Zeroizing::new(vec![[0; 16]; 2]);
            } else {
                nodes = Zeroizing::new(hashes.grow(digit, level, &nodes));
                let (pair, _) = levels[level - 1].as_chunks::<16>();
                let odd = equal_mask(sibling & 1, 1);
                xor(&mut known, &masked(&pair[0], !odd));
                xor(&mut known, &masked(&pair[1], odd));
                for (number, node) in nodes.iter().enumerate() {
                    let other = !equal_mask(number, sibling);
                    let same_side = equal_mask(number & 1, sibling & 1);
                    xor(&mut known, &masked(node, other & same_side));
                }
            }
            for (number, node) in nodes.iter_mut().enumerate() {
                let keep = !equal_mask(number, sibling) & !equal_mask(number, path);
                *node = masked(node, keep);
                xor(node, &masked(&known, equal_mask(number, sibling)));
            }
        }
        let mut leaves = Zeroizing::new(Vec::with_capacity(1 << k));
        let mut strings = Zeroizing::new(Vec::with_capacity(1 << k));
        let (sum, hashed) = checks.split_first_chunk::<CHECK>().expect("32 of 64 bytes");
        let mut missing = *sum;
        for (number, node) in nodes.iter().enumerate() {
            let known = !equal_mask(number, point);
            let (key, check) = hashes.finish_leaf(digit, number, node);
            leaves.push(masked(&key, known));
            strings.push(masked(&check, known));
            xor(&mut missing, &masked(&check, known));
        }
        for (number, string) in strings.iter_mut().enumerate() {
            xor(string, &masked(&missing, equal_mask(number, point)));
        }
        let expected = hashes.checks(digit, &strings);
        difference |= expected
            .iter()
            .zip(hashed)
            .fold(0, |sum, (left, right)| sum | (left ^ right));
        for bit in 0..k {
            let swap = equal_mask(point >> bit & 1, 1);
            for low in (0..1 << k).filter(|number| number >> bit & 1 == 0) {
                let high = low | 1 << bit;
                let mut change = leaves[low];
                xor(&mut change, &leaves[high]);
                let change = masked(&change, swap);
                xor(&mut leaves[low], &change);
                xor(&mut leaves[high], &change);
            }
        }
        slots.extend_from_slice(&leaves);
    }
    if std::hint::black_box(difference) != 0 {
        return Err(OtError::Peer(
            "tree corrections: the check of the trees failed".into(),
        ));
    }
    Ok(slots)
}
