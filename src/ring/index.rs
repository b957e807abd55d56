//! Arithmetic of positions: pure functions over `usize` that wrap where `usize` does.

/// Capacity for a wish of `words` words: the next power of two, 1 at least.
///
/// # Panics
/// When no power of two fits into `usize`.
pub(super) fn capacity_for(words: usize) -> usize {
    words
        .checked_next_power_of_two()
        .expect("ring capacity overflows usize")
}

/// Place of `position` in a ring of `capacity` words (a power of two).
#[inline(always)]
pub(super) const fn place(position: usize, capacity: usize) -> usize {
    position & (capacity - 1)
}

/// Position `words` further on.
#[inline(always)]
pub(super) const fn advance(position: usize, words: usize) -> usize {
    position.wrapping_add(words)
}

/// Number of words from `head` up to `tail`.
#[inline(always)]
pub(super) const fn distance(head: usize, tail: usize) -> usize {
    tail.wrapping_sub(head)
}

/// How many of `words` words from `position` on lie before the ring's end; the rest start over at
/// place 0.
#[inline(always)]
pub(super) const fn before_end(position: usize, words: usize, capacity: usize) -> usize {
    let room = capacity - place(position, capacity);
    if words < room {
        words
    } else {
        room
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Miri runs the same tests, a hundred times slower.
    const CAPACITIES: &[usize] = if cfg!(miri) {
        &[1, 4]
    } else {
        &[1, 2, 4, 8, 16]
    };
    const POSITIONS: usize = if cfg!(miri) { 12 } else { 80 };
    const LARGEST_WISH: usize = if cfg!(miri) { 33 } else { 1025 };

    /// Positions from 0 on, over the middle of `usize`, and over its wrap.
    fn positions() -> impl Iterator<Item = usize> {
        [0, usize::MAX / 2, usize::MAX - POSITIONS / 2]
            .into_iter()
            .flat_map(|start| (0..POSITIONS).map(move |i| advance(start, i)))
    }

    #[test]
    fn capacity_is_the_next_power_of_two() {
        for words in 0..=LARGEST_WISH {
            let capacity = capacity_for(words);
            assert!(capacity.is_power_of_two());
            assert!(capacity >= words.max(1));
            assert!(capacity == 1 || capacity / 2 < words);
        }
    }

    #[test]
    #[should_panic(expected = "overflows")]
    fn capacity_beyond_the_last_power_of_two_is_refused() {
        let _ = capacity_for(usize::MAX / 2 + 2);
    }

    #[test]
    fn neighbouring_positions_have_neighbouring_places() {
        for &capacity in CAPACITIES {
            for position in positions() {
                let here = place(position, capacity);
                let next = place(advance(position, 1), capacity);
                assert!(here < capacity);
                assert_eq!(next, (here + 1) % capacity);
            }
        }
    }

    #[test]
    fn distance_undoes_advance_from_empty_to_full() {
        for &capacity in CAPACITIES {
            for head in positions() {
                for words in 0..=capacity {
                    assert_eq!(distance(head, advance(head, words)), words);
                }
            }
        }
    }

    #[test]
    fn the_two_runs_cover_each_word_once_in_order() {
        for &capacity in CAPACITIES {
            for position in positions() {
                for words in 0..=capacity {
                    let first = before_end(position, words, capacity);
                    let start = place(position, capacity);
                    let by_runs: Vec<_> = (start..start + first).chain(0..words - first).collect();
                    let by_word: Vec<_> = (0..words)
                        .map(|i| place(advance(position, i), capacity))
                        .collect();
                    assert_eq!(by_runs, by_word);
                }
            }
        }
    }
}
