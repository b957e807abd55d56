//! Law of this file: what is remembered of a stack saves work, and decides nothing that would harm. A walk that goes by
//! it is shorter than a whole one and means the same (I15), and never reads what the pre-flight has not just checked.
//!
//! Between two ticks a program changes the leaf side of its stack; what lies below goes on from where it was. So the
//! pre-flight, which looks at each control frame anyway, compares it with what was there when the stack was recorded
//! last. From the root up to the first one that differs the VM's walk would give what it gave then: a frame and its
//! line depend on the control frame's program counter, iseq and method entry alone (`rb_profile_frames`, vm_backtrace.c
//! from 3.1 to 4.0), but for the innermost one, whose line JIT code may have yet to store. That one is always walked.
//!
//! How many frames the VM gives for so many control frames is not asked of it but counted by its rule: one for each that
//! runs an iseq, one for each call of a C function. A whole walk shows whether that is so of this stack; and one that
//! goes by it asks for one frame more, which must be the one below.

use super::scratch::touched;

/// Control frames that are remembered; deeper stacks are walked whole.
const LIMIT: usize = 4096;

/// What makes a control frame's frame and line. Its method entry is pinned while the frame is in a record or in the
/// tables (I7), and so is the iseq by way of it: an address stands for one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Program counter.
    pub pc: usize,
    /// Iseq.
    pub iseq: usize,
    /// Environment.
    pub environment: usize,
    /// Method entry, or what stands in its place, of the method that the environment belongs to.
    pub entry: usize,
}

/// Where a walk may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Frames of control frames that are new or different, at the leaf side.
    pub changed: usize,
    /// Frames of all control frames.
    pub total: usize,
}

/// The control frames of the stack that was recorded last, by place from the root.
#[derive(Debug)]
pub struct Trail {
    steps: Box<[Step]>,
    /// End of the VM stack that they are on; 0 when nothing is remembered.
    end: usize,
    depth: usize,
    /// A whole walk gave as many frames as were counted.
    trusted: bool,
    scan: Scan,
}

/// A look at all control frames, from the innermost one to the root.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    end: usize,
    depth: usize,
    /// Control frames still to come.
    left: usize,
    /// Places below this one may be as they were.
    known: usize,
    found: Option<Found>,
}

impl Trail {
    /// Nothing is remembered. Every page is written, so that no handler takes a page fault (128 KiB). `None` when there is
    /// no memory.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        Some(Self {
            steps: touched(
                LIMIT,
                Step {
                    pc: 1,
                    ..Step::default()
                },
            )?,
            end: 0,
            depth: 0,
            trusted: false,
            scan: Scan::default(),
        })
    }

    /// What is remembered is not the stack that was recorded last.
    #[inline]
    pub fn forget(&mut self) {
        self.end = 0;
        self.scan = Scan::default();
    }

    /// The stack that was looked at is what the last record in the ring means: it is remembered from now on.
    #[inline]
    pub fn keep(&mut self) {
        self.end = self.scan.end;
        self.depth = self.scan.depth;
        self.scan = Scan::default();
    }

    /// A look begins at a stack of `depth` control frames that ends at `end`. From here on nothing is remembered, unless
    /// what is found comes to be recorded ([`Trail::keep`]).
    #[inline]
    pub(super) fn begin(&mut self, end: usize, depth: usize) {
        // The innermost one of either stack had, or has, a line of its own kind.
        let known = if self.end == end {
            self.depth.min(depth) - 1
        } else {
            0
        };
        self.end = 0;
        self.scan = Scan {
            end,
            depth,
            left: depth,
            known,
            found: Some(Found {
                changed: 0,
                total: 0,
            }),
        };
    }

    /// The next control frame towards the root, and whether the VM gives a frame for it.
    #[inline]
    pub(super) fn step(&mut self, step: Step, gives_frame: bool) {
        let Some(found) = &mut self.scan.found else {
            return;
        };
        self.scan.left = self.scan.left.saturating_sub(1);
        let place = self.scan.left;
        found.total += usize::from(gives_frame);
        let Some(before) = self.steps.get_mut(place) else {
            found.changed = found.total;
            return;
        };
        if place >= self.scan.known || *before != step {
            *before = step;
            found.changed = found.total;
        }
    }

    /// The look is over: what it found, if it came down to the root of a stack that can be remembered.
    #[inline]
    pub(super) fn end(&mut self) -> Option<Found> {
        let found = self.scan.found.take()?;
        if self.scan.left > 0 || self.scan.depth > LIMIT {
            return None;
        }
        Some(Found {
            changed: if self.trusted {
                found.changed
            } else {
                found.total
            },
            ..found
        })
    }

    /// A whole walk of the stack just looked at gave so many frames as were counted, or did not.
    #[inline]
    pub fn trust(&mut self, counted_right: bool) {
        self.trusted = counted_right;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: usize = 8000;

    /// Looks at control frames, given root first: pc, and whether it gives a frame.
    fn look(trail: &mut Trail, end: usize, frames: &[(usize, bool)]) -> Option<Found> {
        trail.begin(end, frames.len());
        for &(pc, gives_frame) in frames.iter().rev() {
            let step = Step {
                pc,
                ..Step::default()
            };
            trail.step(step, gives_frame);
        }
        trail.end().inspect(|_| trail.keep())
    }

    fn trusted() -> Trail {
        let mut trail = Trail::try_new().expect("memory");
        trail.trust(true);
        trail
    }

    #[test]
    fn what_is_below_the_first_change_is_shared() {
        let mut trail = trusted();
        let found = |changed, total| Some(Found { changed, total });
        let stack = [(0, false), (2, true), (3, true), (0, false), (5, true)];
        assert_eq!(look(&mut trail, END, &stack), found(3, 3));
        // The innermost one alone, however alike.
        assert_eq!(look(&mut trail, END, &stack), found(1, 3));
        // One more: the one below was innermost, and is walked again.
        let deeper = [&stack[..], &[(6, true)]].concat();
        assert_eq!(look(&mut trail, END, &deeper), found(2, 4));
        assert_eq!(look(&mut trail, END, &stack), found(1, 3));
        let mut other = stack;
        other[2].0 = 9;
        assert_eq!(look(&mut trail, END, &other), found(2, 3));
        // A change near the root counts for all above it.
        other[1].0 = 9;
        assert_eq!(look(&mut trail, END, &other), found(3, 3));
    }

    #[test]
    fn nothing_is_shared_with_another_stack_or_after_it_was_forgotten() {
        let mut trail = trusted();
        let stack = [(1, true), (2, true), (3, true)];
        let all = Some(Found {
            changed: 3,
            total: 3,
        });
        assert_eq!(look(&mut trail, END, &stack), all);
        assert_eq!(look(&mut trail, END + 8, &stack), all);
        trail.forget();
        assert_eq!(look(&mut trail, END + 8, &stack), all);
        trail.trust(false);
        assert_eq!(look(&mut trail, END + 8, &stack), all);
        trail.trust(true);
        assert_eq!(
            look(&mut trail, END + 8, &stack).map(|found| found.changed),
            Some(1)
        );
        // What was looked at and not recorded in the end is no part of what was.
        let other = [(1, true), (9, true), (3, true)];
        trail.begin(END + 8, 3);
        for &(pc, gives_frame) in other.iter().rev() {
            let step = Step {
                pc,
                ..Step::default()
            };
            trail.step(step, gives_frame);
        }
        assert_eq!(trail.end().map(|found| found.changed), Some(2));
        assert_eq!(look(&mut trail, END + 8, &other), all);
        // One that ended early.
        trail.begin(END + 8, 3);
        trail.step(Step::default(), true);
        assert_eq!(trail.end(), None);
        assert_eq!(look(&mut trail, END + 8, &stack), all);
    }

    #[test]
    fn what_is_too_deep_is_not_remembered() {
        let mut trail = trusted();
        let stack = vec![(1, true); LIMIT + 1];
        assert_eq!(look(&mut trail, END, &stack), None);
        assert_eq!(
            look(&mut trail, END, &stack[1..]).map(|found| found.changed),
            Some(LIMIT)
        );
        assert_eq!(
            look(&mut trail, END, &stack[1..]).map(|found| found.changed),
            Some(1)
        );
    }
}
