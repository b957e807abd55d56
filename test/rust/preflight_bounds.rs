//! The pre-flight against stacks in every state that the VM passes through, each part of them in memory of its own between
//! two pages that nobody may read: what is torn is refused, and nothing outside is looked at.
#![cfg(all(target_os = "linux", not(miri)))]

use ringprof_core::capture::preflight::{check, Layout, Torn};

const LAYOUTS: [Layout; 3] = [
    match Layout::of_version(3, 1) {
        Some(layout) => layout,
        None => unreachable!(),
    },
    match Layout::of_version(3, 2) {
        Some(layout) => layout,
        None => unreachable!(),
    },
    match Layout::of_version(4, 0) {
        Some(layout) => layout,
        None => unreachable!(),
    },
];
const PAGE: usize = 4096;
const WORD: usize = 8;
/// Flags words: `VM_FRAME_MAGIC_DUMMY`, a method's and a block's; local ones have bit 1.
const DUMMY: usize = 0x7999_0003;
const METHOD: usize = 0x1111_0003;
const BLOCK: usize = 0x2222_0001;
const WORDS: usize = 256;

/// Words between two pages without access, at the beginning or at the end of theirs.
struct Fenced {
    map: *mut libc::c_void,
    first: usize,
}

impl Fenced {
    fn new(words: usize, at_end: bool) -> Self {
        assert!(words * WORD <= PAGE);
        // SAFETY: a fresh private mapping of three pages; the two outer ones lose their access.
        let map = unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            for outer in [0, 2] {
                assert_eq!(
                    libc::mprotect(map.byte_add(outer * PAGE), PAGE, libc::PROT_NONE),
                    0
                );
            }
            map
        };
        let offset = if at_end { PAGE - words * WORD } else { 0 };
        Self {
            map,
            first: map as usize + PAGE + offset,
        }
    }

    fn at(&self, word: usize) -> usize {
        self.first + word * WORD
    }

    fn set(&self, word: usize, value: usize) {
        // SAFETY: inside of the middle page, by the sizes in this file; aligned.
        unsafe { (self.at(word) as *mut usize).write(value) };
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.map, 3 * PAGE) };
    }
}

/// A thread with a block's frame over a method's over the root's. Thread and context are as short as what may be read of them.
struct Thread {
    layout: Layout,
    thread: Fenced,
    context: Fenced,
    stack: Fenced,
    /// Environments that have escaped: a method's, a block's below it; each with two words in front.
    heap: Fenced,
}

impl Thread {
    fn new(layout: Layout, at_end: bool) -> Self {
        let fake = Self {
            layout,
            thread: Fenced::new(layout.thread_ec / WORD + 1, at_end),
            context: Fenced::new(3, at_end),
            stack: Fenced::new(WORDS, at_end),
            heap: Fenced::new(6, at_end),
        };
        fake.thread.set(layout.thread_ec / WORD, fake.context.first);
        fake.context.set(0, fake.stack.first);
        fake.context.set(1, WORDS);
        fake.context.set(2, fake.stack.at(fake.frame(0)));
        fake.stack.set(2, DUMMY);
        fake.stack.set(5, METHOD);
        fake.stack.set(8, BLOCK);
        fake.stack.set(7, fake.stack.at(5) | 1);
        for (frame, environment) in [8, 5, 2].into_iter().enumerate() {
            // pc, iseq, ep.
            fake.stack.set(fake.frame(frame), 1);
            fake.stack.set(fake.frame(frame) + 2, 1);
            fake.stack
                .set(fake.frame(frame) + 4, fake.stack.at(environment));
        }
        fake.heap.set(2, METHOD);
        fake.heap.set(5, BLOCK);
        fake.heap.set(4, fake.heap.at(2) | 3);
        fake
    }

    /// Word of the stack at which a frame begins; the first is the innermost of three.
    fn frame(&self, index: usize) -> usize {
        WORDS - (3 - index) * self.layout.frame_size / WORD
    }

    fn verdict(&self) -> Result<usize, Torn> {
        // SAFETY: a thread of ours; whatever its words say, a check reads nothing else. That is what is tested.
        unsafe { check(self.layout, self.thread.first) }.map(|seen| seen.control_frames)
    }
}

type Change = fn(&Thread);

fn verdicts_are(expected: Result<usize, Torn>, changes: &[(&str, Change)]) {
    for layout in LAYOUTS {
        for at_end in [false, true] {
            for (name, change) in changes {
                let thread = Thread::new(layout, at_end);
                change(&thread);
                assert_eq!(thread.verdict(), expected, "{name}, {layout:?}");
            }
        }
    }
}

#[test]
fn whole_stacks_pass() {
    verdicts_are(
        Ok(3),
        &[
            ("on the stack", |_| ()),
            (
                "the method's environment has escaped, and its child knows",
                |thread| {
                    thread.stack.set(7, thread.heap.at(2) | 1);
                    thread.stack.set(thread.frame(1) + 4, thread.heap.at(2));
                },
            ),
            ("both have escaped", |thread| {
                thread.stack.set(thread.frame(0) + 4, thread.heap.at(5));
                thread.stack.set(thread.frame(1) + 4, thread.heap.at(2));
            }),
            ("C frames have neither pc nor iseq", |thread| {
                thread.stack.set(thread.frame(0), 0);
                thread.stack.set(thread.frame(0) + 2, 0);
            }),
        ],
    );
}

#[test]
fn a_stack_that_is_being_set_up_or_taken_down_is_refused() {
    verdicts_are(
        Err(Torn::NoStack),
        &[
            ("no context", |thread| {
                thread.thread.set(thread.layout.thread_ec / WORD, 0);
            }),
            ("a misaligned context", |thread| {
                thread
                    .thread
                    .set(thread.layout.thread_ec / WORD, thread.context.first + 4);
            }),
            ("no stack, and a stale frame", |thread| {
                thread.context.set(0, 0)
            }),
            ("a misaligned stack", |thread| {
                thread.context.set(0, thread.stack.first + 1);
            }),
            ("no size", |thread| thread.context.set(1, 0)),
            ("no frame yet", |thread| thread.context.set(2, 0)),
        ],
    );
}

#[test]
fn frames_that_are_none_of_the_stacks_are_refused() {
    verdicts_are(
        Err(Torn::WildFrame),
        &[
            ("at the end, where none is", |thread| {
                thread.context.set(2, thread.stack.at(WORDS));
            }),
            ("above the end", |thread| {
                thread
                    .context
                    .set(2, thread.stack.at(WORDS) + thread.layout.frame_size);
            }),
            ("below the stack", |thread| {
                thread
                    .context
                    .set(2, thread.stack.first - thread.layout.frame_size);
            }),
            ("misaligned", |thread| {
                thread.context.set(2, thread.stack.at(thread.frame(0)) + 4);
            }),
            ("between two frames", |thread| {
                thread
                    .context
                    .set(2, thread.stack.at(thread.frame(0)) + WORD);
            }),
            ("another, freed stack's", |thread| {
                thread.context.set(2, thread.heap.first);
            }),
            ("a size that wraps around", |thread| {
                thread.context.set(1, usize::MAX / WORD + 1);
            }),
        ],
    );
}

#[test]
fn environments_in_the_middle_of_their_escape_are_refused() {
    verdicts_are(
        Err(Torn::WildEnvironment),
        &[
            ("the frame has none", |thread| {
                thread.stack.set(thread.frame(0) + 4, 0);
            }),
            ("misaligned", |thread| {
                thread
                    .stack
                    .set(thread.frame(0) + 4, thread.stack.at(8) + 4);
            }),
            ("the parent's flags are a heap pointer", |thread| {
                thread.stack.set(5, thread.heap.at(2));
            }),
            ("its own are", |thread| {
                thread.stack.set(8, thread.heap.at(5))
            }),
            ("the root's are", |thread| {
                thread.stack.set(2, thread.heap.at(2))
            }),
            ("zero flags", |thread| thread.stack.set(8, 0)),
            ("no parent", |thread| thread.stack.set(7, 1)),
            ("a tagged parent that is misaligned", |thread| {
                thread.stack.set(7, thread.stack.at(5) + 4);
            }),
            ("its own parent", |thread| {
                thread.stack.set(7, thread.stack.at(8) | 1);
            }),
            ("a ring of two", |thread| {
                thread.heap.set(2, BLOCK);
                thread.heap.set(1, thread.heap.at(5) | 1);
                thread.stack.set(thread.frame(0) + 4, thread.heap.at(5));
            }),
        ],
    );
}
