//! Work on equal parts of a range, one part on each thread.

use std::ops::Range;
use std::thread::{self, Builder};

/// Returns what `work` makes of each of `threads` parts of `0..count`, in order; parts begin at multiples of `step`.
pub fn parts<T: Send>(
    count: usize,
    step: usize,
    threads: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let each = count.div_ceil(threads).next_multiple_of(step);
    let part = |number: usize| (number * each).min(count)..((number + 1) * each).min(count);
    thread::scope(|scope| {
        let (work, part) = (&work, &part);
        // Where no thread can be started its part is done by this one.
        let others: Vec<_> = (1..threads)
            .map(|number| Builder::new().spawn_scoped(scope, move || work(part(number))))
            .collect();
        let mut results = vec![work(part(0))];
        results.extend(
            others
                .into_iter()
                .zip(1..)
                .map(|(other, number)| match other {
                    Ok(other) => other.join().expect("a part that does not panic"),
                    Err(_) => work(part(number)),
                }),
        );
        results
    })
}
