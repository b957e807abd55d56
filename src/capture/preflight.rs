//! The check before every walk: is this stack one that `rb_profile_frames` survives?
//!
//! `rb_profile_frames` trusts what it finds. A tick can meet a thread whose VM stack is being set up
//! or taken down, or an environment in the middle of its escape to the heap (`vm_make_env_each`
//! stores the heap object over the flags word before it repoints the child), and then the walk reads
//! wild memory, on every released Ruby. The pre-flight walks the same control frames by itself and
//! refuses what is torn. It runs on the thread that it looks at, so nothing changes until the walk.
//!
//! Offsets were read in the VM's sources from 3.1 to 4.0 (`vm_core.h`: `rb_execution_context_t`,
//! `rb_control_frame_t`, `rb_thread_t`) and are tested at load against the running VM by
//! [`self_test`]; if that fails, capture moves to safepoints.

use super::probe::Probe;
use super::trail::{Found, Step, Trail};
use super::vm_hooks::VmHooks;
use crate::sample::MAX_DEPTH;

/// Where one VM version keeps what the pre-flight reads. Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `rb_thread_t.ec`.
    pub thread_ec: usize,
    /// `sizeof(rb_control_frame_t)`.
    pub frame_size: usize,
    /// `rb_control_frame_t.ep`, the same from 3.1 to 4.0.
    pub frame_ep: usize,
    /// `VM_ENV_FLAG_LOCAL` in an environment's flags word, the same from 3.1 to 4.0.
    pub local_flag: usize,
}

impl Layout {
    /// The layout of a Ruby version, if it is known (3.1 to 4.0).
    #[must_use]
    pub const fn of_version(major: u32, minor: u32) -> Option<Self> {
        let (thread_ec, frame_size) = match (major, minor) {
            (3, 1) => (40, 64),
            (3, 2) => (48, 64),
            (3, 3 | 4) | (4, 0) => (48, 56),
            _ => return None,
        };
        Some(Self {
            thread_ec,
            frame_size,
            frame_ep: 32,
            local_flag: 2,
        })
    }
}

/// `rb_execution_context_t`: `vm_stack`, `vm_stack_size` (words), `cfp`, the same from 3.1 to 4.0.
const EC_STACK: usize = 0;
const EC_STACK_WORDS: usize = 8;
const EC_CFP: usize = 16;
/// `rb_execution_context_t.interrupt_mask`, 32 bits, and in it `POSTPONED_JOB_INTERRUPT_MASK`, on 3.1 and 3.2
/// (`vm_core.h`; seen in the code of `rb_postponed_job_flush`).
const EC_INTERRUPT_MASK: usize = 36;
const JOBS_MASKED: u32 = 4;
/// `rb_control_frame_t`: `pc`, `iseq`, the same from 3.1 to 4.0.
const FRAME_PC: usize = 0;
const FRAME_ISEQ: usize = 16;
/// Every whole flags word is a Fixnum; a heap pointer in its place is not.
const FLAG_FIXNUM: usize = 1;
/// A dummy frame at the root: `VM_FRAME_MAGIC_DUMMY`, its Fixnum bit included.
const MAGIC_MASK: usize = 0x7fff_0001;
const MAGIC_DUMMY: usize = 0x7999_0001;
/// A call of a C function, and of a block that is a C function: `VM_FRAME_MAGIC_CFUNC` and `_IFUNC`, alike.
const MAGIC_CFUNC: usize = 0x5555_0001;
const MAGIC_IFUNC: usize = 0x6666_0001;
/// Bytes before an environment's flags word where its method entry is (`VM_ENV_DATA_INDEX_ME_CREF`).
const ENTRY: usize = 16;
/// Most parents that an environment may have before the chain counts as a cycle.
const MAX_HOPS: usize = 4096;

/// Why a stack must not be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// No execution context, or none of its parts yet (or no longer).
    NoStack,
    /// The control frame pointer lies outside the stack or between two frames.
    WildFrame,
    /// An environment chain that is NULL, misaligned, endless, or whose flags are no Fixnum.
    WildEnvironment,
}

/// What a stack that may be walked looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walkable {
    /// Control frames seen, the root's dummy included.
    pub control_frames: usize,
    /// Those that run an iseq; each of them is a frame of the profile.
    pub ruby_frames: usize,
    /// Flags word of the root-most frame that was looked at.
    pub last_flags: usize,
    /// Its iseq, 0 if it has none. The root's dummy frame has one on the main thread.
    pub last_iseq: usize,
}

/// Who looks at the control frames along with the check.
trait Companion {
    /// The look begins: end of the stack, and number of control frames.
    fn begin(&mut self, end: usize, depth: usize);

    /// The next control frame towards the root, its flags word, and its local environment.
    ///
    /// # Safety
    /// The environment was just checked.
    unsafe fn frame(&mut self, pc: usize, iseq: usize, ep: usize, flags: usize, local: usize);
}

impl Companion for () {
    fn begin(&mut self, _: usize, _: usize) {}

    unsafe fn frame(&mut self, _: usize, _: usize, _: usize, _: usize, _: usize) {}
}

/// A trail, with the VM's outermost pseudo frame.
struct Along<'a> {
    trail: &'a mut Trail,
    pseudo_root: usize,
}

impl Companion for Along<'_> {
    #[inline(always)]
    fn begin(&mut self, end: usize, depth: usize) {
        self.trail.begin(end, depth);
    }

    #[inline(always)]
    unsafe fn frame(&mut self, pc: usize, iseq: usize, ep: usize, flags: usize, local: usize) {
        // SAFETY: (I6) a whole environment has three words up to its flags.
        let (entry, of_method) =
            unsafe { (Trusted.word(local - ENTRY, 0), Trusted.word(local, 0)) };
        let entry = entry.unwrap_or_default();
        let gives_frame = match flags & MAGIC_MASK {
            MAGIC_DUMMY => iseq != 0 && iseq == self.pseudo_root,
            MAGIC_CFUNC => true,
            // The frame of the method that it is a block of, if that is a C function.
            MAGIC_IFUNC => of_method.unwrap_or_default() & MAGIC_MASK == MAGIC_CFUNC,
            _ => pc != 0 && iseq != 0,
        };
        let step = Step {
            pc,
            iseq,
            environment: ep,
            entry,
        };
        self.trail.step(step, gives_frame);
    }
}

/// How words of the VM are read.
trait Memory {
    /// The word at `address + offset`, or `None` where nothing can be read.
    ///
    /// # Safety
    /// The address is aligned to 8, and readable unless the implementation says otherwise.
    unsafe fn word(&self, address: usize, offset: usize) -> Option<usize>;
}

/// Reads what is known to be readable; the compiler sees that it never fails.
struct Trusted;

impl Memory for Trusted {
    #[inline(always)]
    unsafe fn word(&self, address: usize, offset: usize) -> Option<usize> {
        // SAFETY: the caller's promise.
        Some(unsafe { std::ptr::read_volatile((address + offset) as *const usize) })
    }
}

impl Memory for Probe {
    /// Any address will do: the self-test looks where a layout may be wrong about.
    unsafe fn word(&self, address: usize, offset: usize) -> Option<usize> {
        self.read(address.checked_add(offset)?)
    }
}

/// The control frame pointer of the thread whose `rb_thread_t` is at `thread`, with its `ec` at
/// `thread_ec`; 0 if it has no stack. Async-signal-safe.
///
/// # Safety
/// `thread` is a live `rb_thread_t`, and the offset is its VM's.
#[inline]
#[must_use]
pub unsafe fn control_frame(thread_ec: usize, thread: usize) -> usize {
    if thread == 0 || thread & 7 != 0 {
        return 0;
    }
    // SAFETY: (I6) as in `look`.
    unsafe {
        match Trusted.word(thread, thread_ec) {
            None | Some(0) => 0,
            Some(ec) => Trusted.word(ec, EC_CFP).unwrap_or_default(),
        }
    }
}

/// Whether the VM (3.1 or 3.2) runs postponed jobs on the thread whose `rb_thread_t` is at `thread`, with its
/// `ec` at `thread_ec`: it takes a job's place back before it reads what the job is. Async-signal-safe.
///
/// # Safety
/// `thread` is the calling thread's live `rb_thread_t`, and the offset is its VM's.
#[inline]
#[must_use]
pub unsafe fn runs_jobs(thread_ec: usize, thread: usize) -> bool {
    if thread == 0 || thread & 7 != 0 {
        return false;
    }
    // SAFETY: (I6) as in `look`; a context has a mask.
    unsafe {
        match Trusted.word(thread, thread_ec) {
            None | Some(0) => false,
            Some(ec) => {
                std::ptr::read_volatile((ec + EC_INTERRUPT_MASK) as *const u32) & JOBS_MASKED != 0
            }
        }
    }
}

/// Checks the stack of the calling thread, whose `rb_thread_t` is at `thread`. Async-signal-safe.
///
/// # Errors
/// [`Torn`], and then the VM's walk must not run.
///
/// # Safety
/// `thread` is the calling thread's live `rb_thread_t`, and `layout` is its VM's.
#[inline]
pub unsafe fn check(layout: Layout, thread: usize) -> Result<Walkable, Torn> {
    // SAFETY: the caller's promise.
    unsafe { look(&Trusted, layout, thread, &mut ()) }
}

/// The same, and what of the stack is as `trail` has it: that is what it has from now on. `None` if the stack is too deep
/// for that. `pseudo_root` is the VM's outermost pseudo frame, or 0.
///
/// # Errors
/// As [`check`]; the trail is then forgotten.
///
/// # Safety
/// As for [`check`].
#[inline]
pub unsafe fn check_along(
    layout: Layout,
    thread: usize,
    trail: &mut Trail,
    pseudo_root: u64,
) -> Result<Option<Found>, Torn> {
    let mut along = Along {
        trail,
        pseudo_root: pseudo_root as usize,
    };
    // SAFETY: the caller's promise.
    match unsafe { look(&Trusted, layout, thread, &mut along) } {
        Ok(_) => Ok(trail.end()),
        Err(torn) => {
            trail.forget();
            Err(torn)
        }
    }
}

/// The check, by way of `memory`.
///
/// # Safety
/// As for [`check`], unless `memory` reads anything.
#[inline(always)]
unsafe fn look(
    memory: &impl Memory,
    layout: Layout,
    thread: usize,
    companion: &mut impl Companion,
) -> Result<Walkable, Torn> {
    if thread == 0 || thread & 7 != 0 {
        return Err(Torn::NoStack);
    }
    // SAFETY: (I6) a live rb_thread_t is readable at `thread_ec`; the context that it names is the
    // one that the thread runs on (or, between two instructions of a fiber switch, the one that it
    // is about to run on), and neither is freed while it is current.
    let (stack, stack_words, first) = unsafe {
        let ec = memory.word(thread, layout.thread_ec).ok_or(Torn::NoStack)?;
        if ec == 0 || ec & 7 != 0 {
            return Err(Torn::NoStack);
        }
        let parts = (
            memory.word(ec, EC_STACK),
            memory.word(ec, EC_STACK_WORDS),
            memory.word(ec, EC_CFP),
        );
        let (Some(stack), Some(stack_words), Some(first)) = parts else {
            return Err(Torn::NoStack);
        };
        (stack, stack_words, first)
    };
    if stack == 0 || stack & 7 != 0 || stack_words == 0 || first == 0 {
        return Err(Torn::NoStack);
    }
    let end = stack.wrapping_add(stack_words.wrapping_mul(8));
    if first < stack
        || first >= end
        || first & 7 != 0
        || !(end - first).is_multiple_of(layout.frame_size)
    {
        return Err(Torn::WildFrame);
    }
    let mut seen = Walkable {
        control_frames: 0,
        ruby_frames: 0,
        last_flags: 0,
        last_iseq: 0,
    };
    companion.begin(end, (end - first) / layout.frame_size);
    let mut frame = first;
    // The walk stops after MAX_DEPTH + 1 frames, so what lies below is of no interest.
    while frame < end && seen.ruby_frames <= MAX_DEPTH {
        // SAFETY: (I6) `frame` is inside the stack's bounds, checked above, on a frame boundary.
        let parts = unsafe {
            (
                memory.word(frame, FRAME_PC),
                memory.word(frame, FRAME_ISEQ),
                memory.word(frame, layout.frame_ep),
            )
        };
        let (Some(pc), Some(iseq), Some(ep)) = parts else {
            return Err(Torn::WildFrame);
        };
        // SAFETY: (I6) `ep` is the environment of a frame that the VM has pushed: it stores `ep`
        // before it publishes the frame.
        let (flags, local) = unsafe { check_environment(memory, ep, layout.local_flag)? };
        // SAFETY: (I6) it was just checked.
        unsafe { companion.frame(pc, iseq, ep, flags, local) };
        seen.last_flags = flags;
        seen.last_iseq = iseq;
        seen.control_frames += 1;
        if pc != 0 && iseq != 0 {
            seen.ruby_frames += 1;
        }
        frame += layout.frame_size;
    }
    Ok(seen)
}

/// Follows an environment chain up to its local one, as the VM's lookup of the method entry does.
/// Returns the flags word of the first link, and the last link.
///
/// # Safety
/// `ep` is 0, misaligned, or the environment of a frame on the calling thread's VM stack, unless
/// `memory` reads anything.
#[inline(always)]
unsafe fn check_environment(
    memory: &impl Memory,
    mut ep: usize,
    local_flag: usize,
) -> Result<(usize, usize), Torn> {
    let mut first_flags = None;
    for _ in 0..MAX_HOPS {
        if ep == 0 || ep & 7 != 0 {
            return Err(Torn::WildEnvironment);
        }
        // SAFETY: (I6) links of an environment chain stay readable while their frame is on the stack;
        // a torn link is seen by its flags before it's followed.
        let flags = unsafe { memory.word(ep, 0) }.ok_or(Torn::WildEnvironment)?;
        if flags & (FLAG_FIXNUM | local_flag) == FLAG_FIXNUM | local_flag {
            return Ok((first_flags.unwrap_or(flags), ep));
        }
        if flags & FLAG_FIXNUM == 0 {
            return Err(Torn::WildEnvironment);
        }
        first_flags = first_flags.or(Some(flags));
        // SAFETY: (I6) a non-local environment holds its parent, tagged in the low two bits, one word below.
        let parent = unsafe { memory.word(ep.wrapping_sub(8), 0) };
        ep = parent.ok_or(Torn::WildEnvironment)? & !3;
    }
    Err(Torn::WildEnvironment)
}

/// Tries `layout` on the calling thread: is the stack that we see the stack that the VM sees? A layout
/// that is wrong may point anywhere, so nothing is read that was not probed.
///
/// # Safety
/// Runs under the GVL on a Ruby thread whose `rb_thread_t` is at `thread`; `hooks` are the VM's.
/// `scratch` has room for [`MAX_DEPTH`] frames and lines.
#[must_use]
pub unsafe fn self_test(
    layout: Layout,
    thread: usize,
    hooks: &VmHooks,
    frames: &mut [u64],
    lines: &mut [i32],
) -> bool {
    // The magic's bits differ from frame to frame: none of them can stand for another thing.
    if layout.local_flag & MAGIC_MASK != 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    let seen = Probe::new().and_then(|probe| unsafe { look(&probe, layout, thread, &mut ()) }.ok());
    let Some(seen) = seen else {
        return false;
    };
    let limit = frames.len().min(lines.len());
    // SAFETY: the hooks are the VM's, under the GVL; both slices have room for `limit` entries.
    let walked =
        unsafe { (hooks.profile_frames)(0, limit as i32, frames.as_mut_ptr(), lines.as_mut_ptr()) };
    let walked = usize::try_from(walked).unwrap_or(0);
    // Each Ruby frame is walked; C frames may be; the root's dummy is not (3.1 shows it once).
    let root_is_dummy = seen.last_flags & MAGIC_MASK == MAGIC_DUMMY;
    root_is_dummy
        && walked >= seen.ruby_frames
        && walked <= seen.control_frames
        && seen.ruby_frames > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        thread_ec: 48,
        frame_size: 56,
        frame_ep: 32,
        local_flag: FLAG_LOCAL,
    };
    const FLAG_LOCAL: usize = 2;

    /// A VM stack with one Ruby frame over a dummy, in memory of our own.
    struct FakeThread {
        thread: Box<[usize; 8]>,
        ec: Box<[usize; 4]>,
        stack: Box<[usize; 64]>,
    }

    impl FakeThread {
        fn new() -> Self {
            let mut fake = Self {
                thread: Box::new([0; 8]),
                ec: Box::new([0; 4]),
                stack: Box::new([0; 64]),
            };
            fake.thread[6] = fake.ec.as_ptr() as usize;
            fake.ec[0] = fake.stack.as_ptr() as usize;
            fake.ec[1] = 64;
            let dummy = 64 - 7;
            let top = dummy - 7;
            fake.ec[2] = fake.at(top);
            // Environments at the low end: block -> method.
            fake.stack[2] = MAGIC_DUMMY | FLAG_LOCAL;
            fake.stack[5] = 0x1111_0001 | FLAG_LOCAL;
            fake.stack[8] = 0x2222_0001;
            fake.stack[7] = fake.at(5) | 1;
            fake.stack[dummy + 4] = fake.at(2);
            fake.stack[top] = 1;
            fake.stack[top + 2] = 1;
            fake.stack[top + 4] = fake.at(8);
            fake
        }

        fn at(&self, index: usize) -> usize {
            self.stack.as_ptr() as usize + index * 8
        }

        fn check(&self) -> Result<Walkable, Torn> {
            // SAFETY: a whole fake thread in our memory.
            unsafe { check(LAYOUT, self.thread.as_ptr() as usize) }
        }
    }

    #[test]
    fn a_whole_stack_passes() {
        let seen = FakeThread::new().check().expect("walkable");
        assert_eq!((seen.control_frames, seen.ruby_frames), (2, 1));
        assert_eq!(seen.last_flags & MAGIC_MASK, MAGIC_DUMMY);
    }

    #[test]
    fn missing_parts_are_refused() {
        for break_it in [
            (|fake: &mut FakeThread| fake.thread[6] = 0) as fn(&mut FakeThread),
            |fake| fake.ec[0] = 0,
            |fake| fake.ec[1] = 0,
            |fake| fake.ec[2] = 0,
        ] {
            let mut fake = FakeThread::new();
            break_it(&mut fake);
            assert_eq!(fake.check(), Err(Torn::NoStack));
        }
    }

    #[test]
    fn frames_out_of_bounds_are_refused() {
        for break_it in [
            (|fake: &mut FakeThread| fake.ec[2] = fake.at(64)) as fn(&mut FakeThread),
            |fake| fake.ec[2] -= 8,
            |fake| fake.ec[2] += 4,
            |fake| fake.ec[2] = fake.at(0) - 56,
        ] {
            let mut fake = FakeThread::new();
            break_it(&mut fake);
            assert_eq!(fake.check(), Err(Torn::WildFrame));
        }
    }

    #[test]
    fn torn_environments_are_refused() {
        for break_it in [
            // The escape's window: the parent's flags word holds a heap pointer.
            (|fake: &mut FakeThread| fake.stack[5] = 0x7f00_0000_1000) as fn(&mut FakeThread),
            |fake| fake.stack[7] = 1,
            |fake| fake.stack[7] = fake.at(5) + 4,
            |fake| fake.stack[64 - 14 + 4] = 0,
            // A cycle.
            |fake| fake.stack[7] = fake.at(8) | 1,
        ] {
            let mut fake = FakeThread::new();
            break_it(&mut fake);
            assert_eq!(fake.check(), Err(Torn::WildEnvironment));
        }
    }

    #[test]
    fn a_layout_that_points_nowhere_is_read_with_care() {
        let fake = FakeThread::new();
        let probe = Probe::new().expect("a pipe");
        // SAFETY: a probe reads anything.
        let look = |layout| unsafe { look(&probe, layout, fake.thread.as_ptr() as usize, &mut ()) };
        assert_eq!(look(LAYOUT), fake.check());
        let mut fake = FakeThread::new();
        fake.thread[0] = 8;
        fake.thread[1] = usize::MAX & !7;
        for (offset, torn) in [(0, Torn::NoStack), (8, Torn::NoStack)] {
            let layout = Layout {
                thread_ec: offset,
                ..LAYOUT
            };
            // SAFETY: as above.
            let seen =
                unsafe { super::look(&probe, layout, fake.thread.as_ptr() as usize, &mut ()) };
            assert_eq!(seen, Err(torn));
        }
    }

    #[test]
    fn versions_that_nobody_has_read_have_no_layout() {
        for (major, minor) in [(0, 0), (2, 7), (3, 0), (3, 5), (4, 1), (5, 0)] {
            assert_eq!(Layout::of_version(major, minor), None);
        }
    }

    #[test]
    fn no_thread_is_refused() {
        // SAFETY: addresses 0 and 12 are refused before anything is read.
        unsafe {
            assert_eq!(check(LAYOUT, 0), Err(Torn::NoStack));
            assert_eq!(check(LAYOUT, 12), Err(Torn::NoStack));
        }
    }
}
