//! Requests to memcheck, as `valgrind/valgrind.h` and `valgrind/memcheck.h` define them.
//!
//! Outside of valgrind they do nothing. The crates that wrap these headers need libclang or the headers.

const RUNNING: usize = 0x1001;
const ERRORS: usize = 0x1201;
// 'M', 'C' in the two highest bytes.
const UNDEFINED: usize = 0x4d43_0001;
const DEFINED: usize = 0x4d43_0002;

#[cfg(target_arch = "x86_64")]
fn request(number: usize, bytes: &[u8]) -> usize {
    let arguments = [number, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    let mut result = 0usize;
    // SAFETY: the rotations give rdi back, and the exchange does nothing; valgrind reads `arguments`, which
    // outlives the block, and sets rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") result,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_: usize, _: &[u8]) -> usize {
    0
}

pub fn running() -> bool {
    request(RUNNING, &[]) > 0
}

/// How many errors there have been.
pub fn errors() -> usize {
    request(ERRORS, &[])
}

pub fn undefined(bytes: &[u8]) {
    request(UNDEFINED, bytes);
}

pub fn defined(bytes: &[u8]) {
    request(DEFINED, bytes);
}
