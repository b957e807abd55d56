//! Tables whose memory the system refuses, at each allocation in turn: no abort, whole tables, and every
//! weight either counted or refused (I13).

use ringprof_core::drain::{Corrupt, NoMemory, Options, Profile, Tables};
use ringprof_core::ring;
use ringprof_core::sample::{FrameLine, GcPhase, Header, Kind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;

const SLOT: u16 = 1;

thread_local! {
    // Constant and without a destructor: an allocator may use it at any time.
    /// Allocations until one is refused; 0: none is.
    static UNTIL_REFUSED: Cell<u64> = const { Cell::new(0) };
}

struct Refusing;

fn refuses() -> bool {
    UNTIL_REFUSED.with(|left| {
        let now = left.get();
        left.set(now.saturating_sub(1));
        now == 1
    })
}

// SAFETY: every call goes on to the system's allocator unchanged, or answers null as it may itself.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuses() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Runs `body` with its nth allocation refused; whether it came that far, and its value.
fn refusing<T>(nth: u64, body: impl FnOnce() -> T) -> (bool, T) {
    UNTIL_REFUSED.with(|left| left.set(nth));
    let value = body();
    let left = UNTIL_REFUSED.with(|left| left.replace(0));
    (left == 0, value)
}

/// A record of weight 3, and the frames in it.
struct Record {
    words: Vec<u64>,
    frames: Vec<u64>,
}

const WEIGHT: u64 = 3;

fn record(kind: Kind, stack: &[FrameLine]) -> Record {
    let mut words = vec![0, 1_000_000];
    for frame in stack {
        let mut pair = [0; 2];
        let used = frame.encode(&mut pair);
        words.extend_from_slice(&pair[..used]);
    }
    let phase = match kind {
        Kind::Gc => GcPhase::Marking,
        _ => GcPhase::None,
    };
    words[0] = Header::new(kind, phase, false, words.len(), SLOT, WEIGHT).0;
    Record {
        words,
        frames: stack.iter().map(|frame| frame.frame).collect(),
    }
}

/// Stacks that part at every depth, each with a repeat, and GC between them.
fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for number in 0..60_u64 {
        let depth = 1 + number % 9;
        let stack: Vec<_> = (0..depth)
            .map(|at| FrameLine::new((1 + number * (at + 1) % 200) * 8, at as i32 + 1))
            .collect();
        records.push(record(Kind::Stack, &stack));
        records.push(record(Kind::Again, &[]));
        if number % 7 == 0 {
            records.push(record(Kind::Gc, &[]));
        }
    }
    records
}

fn tables() -> Tables {
    let options = Options {
        both_clocks: false,
        raw: true,
        monotone_deltas: false,
        max_bytes: 0,
    };
    let mut tables = Tables::new(options);
    tables.resume(0, true, 0);
    tables
}

/// Numbers that two profiles of the same records share, whatever the order of their frames.
fn sums(profile: &Profile) -> (u64, u64, u64, u64, u64) {
    let frames = &profile.frames;
    let raw = profile.raw.as_ref().expect("raw");
    (
        profile.samples,
        profile.gc_samples,
        raw.samples(),
        frames.iter().map(|frame| frame.own).sum(),
        frames.iter().map(|frame| frame.total).sum(),
    )
}

#[test]
fn a_refused_record_leaves_whole_tables_and_the_others_count() {
    let records = records();
    let mut nth = 0;
    loop {
        nth += 1;
        let mut tables = tables();
        let mut refused = Vec::new();
        let (reached, ()) = refusing(nth, || {
            for (at, record) in records.iter().enumerate() {
                match tables.insert(record.words.iter().copied()) {
                    Ok(()) => {}
                    // Pushed where the test itself must not be the one that is refused.
                    Err(error) => {
                        UNTIL_REFUSED.with(|left| left.set(0));
                        refused.push((at, error));
                    }
                }
            }
        });
        if !reached {
            assert_eq!(refused, []);
            break;
        }
        assert!(!refused.is_empty(), "allocation {nth} was refused");
        assert!(
            refused.iter().all(|(_, error)| *error == Corrupt::NoMemory),
            "allocation {nth}: {refused:?}"
        );
        let lost: BTreeSet<_> = refused.iter().map(|(at, _)| *at).collect();
        let counted = (records.len() - lost.len()) as u64 * WEIGHT;
        assert_eq!(tables.samples(), counted);
        let mut marked = BTreeSet::new();
        tables.each_frame(|frame| {
            marked.insert(frame);
        });
        let mut again = self::tables();
        for (at, record) in records.iter().enumerate() {
            let mut words = record.words.clone();
            if lost.contains(&at) {
                // Its stack may have had room, and its repeat a place then.
                words[0] = Header(words[0]).0 & !(u64::MAX << 40);
                if Header(words[0]).kind() != Some(Kind::Stack) || lost.contains(&(at + 1)) {
                    continue;
                }
            }
            for frame in &record.frames {
                assert!(marked.contains(frame), "a counted frame is marked");
            }
            again
                .insert(words.into_iter())
                .expect("memory, and a stack to repeat");
        }
        assert_eq!(sums(&tables.finish(1000)), sums(&again.finish(1000)));
    }
    assert!(nth > 20, "the tables grow in more than {nth} steps");
}

#[test]
fn a_refused_profile_can_be_asked_for_again() {
    let mut whole = tables();
    for record in records() {
        whole.insert(record.words.iter().copied()).expect("memory");
    }
    let wanted = whole.finish(1000);
    let mut tables = tables();
    for record in records() {
        tables.insert(record.words.iter().copied()).expect("memory");
    }
    let mut nth = 1;
    loop {
        match refusing(nth, || tables.try_finish(1000)) {
            (true, Ok(_)) => panic!("allocation {nth} was refused, and nobody said so"),
            (true, Err(NoMemory)) => nth += 1,
            (false, profile) => {
                assert_eq!(profile, Ok(wanted));
                break;
            }
        }
    }
    assert!(nth > 20, "a profile is made of more than {nth} parts");
}

#[test]
fn no_weight_is_credited_without_memory_for_its_point() {
    let mut tables = tables();
    let stack = record(Kind::Stack, &[FrameLine::new(8, 1)]);
    tables.insert(stack.words.iter().copied()).expect("memory");
    let mut counted = WEIGHT;
    let mut refusals = 0;
    for _ in 0..200 {
        let (refused, credited) = refusing(1, || tables.credit_last(1, 2_000_000));
        assert_eq!(credited, !refused);
        counted += u64::from(credited);
        refusals += u32::from(refused);
        if refused {
            assert!(tables.credit_last(1, 2_000_000), "memory is there again");
            counted += 1;
        }
        assert_eq!(tables.samples(), counted);
    }
    assert!(refusals >= 3, "raw grew {refusals} times");
}

#[test]
fn a_ring_without_memory_is_none() {
    let (refused, ring) = refusing(1, || ring::try_with_capacity(1 << 14));
    assert!(refused && ring.is_none());
    assert!(ring::try_with_capacity(1 << 14).is_some());
}
