//! Instructions that kernels use: the best of the machine, or fewer where a limit was set.
//!
//! The limit is for kernels of this crate. The crates below (`aes`, `ghash`, `polyval`, ...) look for themselves.

use std::sync::atomic::{AtomicU8, Ordering};

/// Sets of instructions. Each needs those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Level {
    /// The instructions of every processor.
    Portable,
    /// AES-NI, with SSSE3 and SSE4.1; AVX2 where the machine has it, for what is neither AES nor a carry-less product.
    Aes,
    /// AES on two blocks at once, and AVX2.
    Vaes256,
    /// AES on four blocks at once, and AVX-512.
    Vaes512,
}

const LEVELS: [Level; 4] = [Level::Portable, Level::Aes, Level::Vaes256, Level::Vaes512];

static MOST: AtomicU8 = AtomicU8::new(Level::Vaes512 as u8);

impl Level {
    /// Returns the name by which callers choose it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Aes => "aes-ni",
            Self::Vaes256 => "vaes-256",
            Self::Vaes512 => "vaes-512",
        }
    }

    /// Tells whether the limit lets kernels use it.
    pub fn permitted(self) -> bool {
        self as u8 <= MOST.load(Ordering::Relaxed)
    }

    /// Whether the machine has it.
    #[cfg(target_arch = "x86_64")]
    pub fn detected(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Aes => {
                is_x86_feature_detected!("aes")
                    && is_x86_feature_detected!("ssse3")
                    && is_x86_feature_detected!("sse4.1")
            }
            Self::Vaes256 => {
                Self::Aes.detected()
                    && is_x86_feature_detected!("vaes")
                    && is_x86_feature_detected!("avx2")
            }
            Self::Vaes512 => {
                Self::Vaes256.detected()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    /// Whether the machine has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detected(self) -> bool {
        self == Self::Portable
    }
}

/// Limits kernels that run from now on to instructions up to the level of this name.
///
/// # Errors
/// No level has the name, or the machine lacks it.
pub fn limit(name: &str) -> Result<(), String> {
    let level = named(name, Level::detected)?;
    MOST.store(level as u8, Ordering::Relaxed);
    Ok(())
}

/// Returns the level of this name, on a machine described by `detected`.
fn named(name: &str, detected: impl Fn(Level) -> bool) -> Result<Level, String> {
    let names = |levels: Vec<Level>| {
        levels
            .into_iter()
            .map(Level::name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(level) = LEVELS.into_iter().find(|level| level.name() == name) else {
        return Err(format!("{name:?} is none of {}", names(LEVELS.to_vec())));
    };
    if !detected(level) {
        let result = LEVELS.into_iter().filter(|&level| detected(level));
        return Err(format!(
            "this processor lacks {name}, it has {}",
            names(result.collect())
        ));
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_instructions_are_refused() {
        let aes_alone = |level| matches!(level, Level::Portable | Level::Aes);
        assert_eq!(named("aes-ni", aes_alone), Ok(Level::Aes));
        let refused = named("vaes-256", aes_alone).unwrap_err();
        assert_eq!(
            refused,
            "this processor lacks vaes-256, it has portable, aes-ni"
        );
    }

    #[test]
    fn another_name_is_refused() {
        let refused = named("sse", |_| true).unwrap_err();
        assert_eq!(
            refused,
            "\"sse\" is none of portable, aes-ni, vaes-256, vaes-512"
        );
    }
}
