//! A VM in memory of our own: fake frames, a fake VM stack for each thread, and hooks that a test
//! steers.
//!
//! Every hook leaves a number of its own in `errno`, as the VM's may.
//!
//! Relaxed everywhere in this file: a switch is set by the thread that is then signalled, or before
//! the other threads are spawned; a counter stands alone.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use ringprof_core::capture::clock;
use ringprof_core::capture::control::ThreadIdentity;
use ringprof_core::capture::preflight::Layout;
use ringprof_core::capture::vm_hooks::VmHooks;
use ringprof_core::sample::FrameLine;
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

/// The layout that [`FakeThread`] is laid out by.
pub const LAYOUT: Layout = Layout {
    thread_ec: 48,
    frame_size: 56,
    frame_ep: 32,
    local_flag: 2,
};

/// What the hooks leave in `errno`.
pub const SPOILT_ERRNO: c_int = libc::EOWNERDEAD;

static DURING_GC: AtomicBool = AtomicBool::new(false);
static GC_PHASE: AtomicI32 = AtomicI32::new(0);
static RUBY_THREAD: AtomicBool = AtomicBool::new(true);
static MAY_HOLD_GVL: AtomicBool = AtomicBool::new(true);
static ALLOCATES: AtomicBool = AtomicBool::new(false);
static COLLECTIONS: AtomicU64 = AtomicU64::new(0);
static CAUSE: AtomicU64 = AtomicU64::new(0);
/// Stack of whatever other thread is asked for.
static OTHER: AtomicPtr<&'static [FrameLine]> = AtomicPtr::new(std::ptr::null_mut());
static WALK_NS: AtomicU64 = AtomicU64::new(0);
static WALKS: AtomicU64 = AtomicU64::new(0);
static DRAINS_REQUESTED: AtomicU64 = AtomicU64::new(0);
static SAMPLES_REQUESTED: AtomicU64 = AtomicU64::new(0);

/// The stack of a thread that was given none.
static EMPTY: &[FrameLine] = &[];

thread_local! {
    // Constant and without a destructor: reading it in a signal sets up nothing.
    // One word, so that a tick in the middle of `set_stack` finds the old stack or the new one, not
    // the address of the one with the length of the other.
    static STACK: Cell<&'static &'static [FrameLine]> = const { Cell::new(&EMPTY) };
}

/// Puts every switch and counter, and the calling thread's stack, back to where they began.
pub fn reset() {
    set_gc(None);
    set_ruby_thread(true);
    set_may_hold_gvl(true);
    set_allocates(false);
    set_walk_ns(0);
    set_collection(0, 0);
    OTHER.store(std::ptr::null_mut(), Relaxed);
    WALKS.store(0, Relaxed);
    DRAINS_REQUESTED.store(0, Relaxed);
    SAMPLES_REQUESTED.store(0, Relaxed);
    set_stack(&[]);
}

/// What walks of the calling thread find from now on, leaf first.
pub fn set_stack(frames: &'static [FrameLine]) {
    STACK.set(Box::leak(Box::new(frames)));
}

/// GC runs in that phase (0 neither, 1 marking, 2 sweeping), or does not run.
pub fn set_gc(phase: Option<c_int>) {
    GC_PHASE.store(phase.unwrap_or(0), Relaxed);
    DURING_GC.store(phase.is_some(), Relaxed);
}

/// The collection at hand: its number, and what it was started by.
pub fn set_collection(number: u64, cause: u64) {
    COLLECTIONS.store(number, Relaxed);
    CAUSE.store(cause, Relaxed);
}

/// What a walk of another thread finds.
pub fn set_other_stack(frames: &'static [FrameLine]) {
    OTHER.store(Box::leak(Box::new(frames)), Relaxed);
}

/// Whether the signalled threads are Ruby's.
pub fn set_ruby_thread(yes: bool) {
    RUBY_THREAD.store(yes, Relaxed);
}

/// Whether the signalled threads are outside of regions without the GVL.
pub fn set_may_hold_gvl(yes: bool) {
    MAY_HOLD_GVL.store(yes, Relaxed);
}

/// Makes every walk allocate: what the handler must never do, so that a check can be seen to fail.
pub fn set_allocates(yes: bool) {
    ALLOCATES.store(yes, Relaxed);
}

/// How long every walk takes at least, in ns.
pub fn set_walk_ns(ns: u64) {
    WALK_NS.store(ns, Relaxed);
}

/// Walks since the reset.
pub fn walks() -> u64 {
    WALKS.load(Relaxed)
}

/// Drains asked for since the reset.
pub fn drains_requested() -> u64 {
    DRAINS_REQUESTED.load(Relaxed)
}

/// Samples at safepoints asked for since the reset.
pub fn samples_requested() -> u64 {
    SAMPLES_REQUESTED.load(Relaxed)
}

/// The hooks of this VM.
pub fn hooks(request_from_anywhere: bool) -> VmHooks {
    VmHooks {
        profile_frames,
        profile_thread_frames: Some(profile_thread_frames),
        gc_count,
        gc_cause,
        during_gc,
        gc_phase,
        is_ruby_thread,
        may_hold_gvl,
        request_drain,
        request_sample,
        request_from_anywhere,
    }
}

fn spoil_errno() {
    // SAFETY: the address of the calling thread's own errno.
    unsafe { *libc::__errno_location() = SPOILT_ERRNO }
}

unsafe extern "C" fn profile_frames(
    start: c_int,
    limit: c_int,
    frames: *mut u64,
    lines: *mut c_int,
) -> c_int {
    spoil_errno();
    WALKS.fetch_add(1, Relaxed);
    if ALLOCATES.load(Relaxed) {
        drop(std::hint::black_box(Box::new(start)));
    }
    let began = clock::monotonic();
    while clock::monotonic() - began < WALK_NS.load(Relaxed) {
        std::hint::spin_loop();
    }
    // SAFETY: the caller's promise.
    unsafe { write_out(STACK.get(), limit, frames, lines) }
}

unsafe extern "C" fn profile_thread_frames(
    _: u64,
    _: c_int,
    limit: c_int,
    frames: *mut u64,
    lines: *mut c_int,
) -> c_int {
    // SAFETY: null, or leaked by `set_other_stack`; and the caller's promise.
    unsafe {
        match OTHER.load(Relaxed).as_ref() {
            Some(stack) => write_out(stack, limit, frames, lines),
            None => 0,
        }
    }
}

unsafe fn write_out(
    stack: &[FrameLine],
    limit: c_int,
    frames: *mut u64,
    lines: *mut c_int,
) -> c_int {
    let count = stack.len().min(limit as usize);
    for (index, frame) in stack[..count].iter().enumerate() {
        // SAFETY: both arrays have room for `limit` entries, as the VM may assume.
        unsafe {
            frames.add(index).write(frame.frame);
            lines.add(index).write(frame.line);
        }
    }
    count as c_int
}

unsafe extern "C" fn during_gc() -> c_int {
    spoil_errno();
    c_int::from(DURING_GC.load(Relaxed))
}

unsafe extern "C" fn gc_count() -> u64 {
    spoil_errno();
    COLLECTIONS.load(Relaxed)
}

unsafe extern "C" fn gc_cause() -> u64 {
    spoil_errno();
    CAUSE.load(Relaxed)
}

unsafe extern "C" fn gc_phase() -> c_int {
    spoil_errno();
    GC_PHASE.load(Relaxed)
}

unsafe extern "C" fn is_ruby_thread() -> c_int {
    spoil_errno();
    c_int::from(RUBY_THREAD.load(Relaxed))
}

unsafe extern "C" fn may_hold_gvl() -> c_int {
    spoil_errno();
    c_int::from(MAY_HOLD_GVL.load(Relaxed))
}

unsafe extern "C" fn request_drain() {
    spoil_errno();
    DRAINS_REQUESTED.fetch_add(1, Relaxed);
}

unsafe extern "C" fn request_sample() {
    spoil_errno();
    SAMPLES_REQUESTED.fetch_add(1, Relaxed);
}

/// A VALUE whose object has these flags. Leaked: it may be in a ring.
fn object(flags: u64) -> u64 {
    Box::leak(Box::new([flags, 0])).as_ptr() as u64
}

/// A VALUE that is a method entry, for odd `n`, or an iseq.
pub fn frame(n: usize) -> u64 {
    object(0x1a | if n % 2 == 1 { 6 } else { 7 } << 12)
}

/// VALUEs that are no frames: a String, an imemo of another kind, two odd addresses, and 0.
pub fn no_frames() -> [u64; 5] {
    [object(0x05), object(0x1a | 3 << 12), frame(0) + 4, 8 + 4, 0]
}

/// A stack of `depth` new frames, leaf first, at the lines `line`, `line` + 1, …
pub fn stack(depth: usize, line: i32) -> &'static [FrameLine] {
    let frames = (0..depth).map(|n| FrameLine::new(frame(n), line + n as i32));
    frames.collect::<Vec<_>>().leak()
}

/// A stack of frames with these VALUEs, leaf first.
pub fn stack_of(values: &[u64]) -> &'static [FrameLine] {
    let frames = values.iter().map(|&value| FrameLine::new(value, 1));
    frames.collect::<Vec<_>>().leak()
}

/// An `rb_thread_t`, its execution context and its VM stack: a Ruby frame with a block's environment
/// over the root's dummy frame. Leaked, as a handler may read it.
#[derive(Debug)]
pub struct FakeThread {
    value: u64,
    thread: [AtomicUsize; 8],
    ec: [AtomicUsize; 5],
    stack: [AtomicUsize; 64],
}

/// Flags of an environment: its frame's magic, the Fixnum bit, and whether it is local.
const DUMMY_LOCAL: usize = 0x7999_0001 | 2;
const METHOD_LOCAL: usize = 0x1111_0001 | 2;
const BLOCK: usize = 0x2222_0001;
/// Indices into the stack.
const DUMMY: usize = 64 - 7;
const TOP: usize = DUMMY - 7;
const METHOD_FLAGS: usize = 5;

impl FakeThread {
    /// A thread whose stack may be walked.
    pub fn new() -> &'static Self {
        let fake: &'static Self = Box::leak(Box::new(Self {
            value: object(0x0c),
            thread: std::array::from_fn(|_| AtomicUsize::new(0)),
            ec: std::array::from_fn(|_| AtomicUsize::new(0)),
            stack: std::array::from_fn(|_| AtomicUsize::new(0)),
        }));
        let at = |index: usize| fake.stack[index].as_ptr() as usize;
        let put = |index: usize, word: usize| fake.stack[index].store(word, Relaxed);
        fake.thread[6].store(fake.ec.as_ptr() as usize, Relaxed);
        fake.ec[0].store(at(0), Relaxed);
        fake.ec[1].store(64, Relaxed);
        fake.ec[2].store(at(TOP), Relaxed);
        put(2, DUMMY_LOCAL);
        put(METHOD_FLAGS, METHOD_LOCAL);
        put(7, at(METHOD_FLAGS) | 1);
        put(8, BLOCK);
        put(DUMMY + 4, at(2));
        put(TOP, 1);
        put(TOP + 2, 1);
        put(TOP + 4, at(8));
        fake
    }

    /// Whether the VM runs postponed jobs on this thread: it masks them meanwhile.
    pub fn set_runs_jobs(&self, yes: bool) {
        // The upper half of the word: 32 bits of flags, then 32 of mask.
        self.ec[4].store(if yes { 4 << 32 } else { 0 }, Relaxed);
    }

    /// The calling thread, with this for its Ruby half.
    pub fn identity(&self) -> ThreadIdentity {
        ThreadIdentity {
            tid: tid(),
            thread: self.value,
            vm_thread: self.thread.as_ptr() as usize,
            main: false,
            off: None,
        }
    }

    /// The window of an environment's escape: a heap pointer lies over the flags of the method's.
    pub fn tear(&self) {
        self.stack[METHOD_FLAGS].store(0x7f00_0000_1000, Relaxed);
    }

    /// The thread has no execution context, as one that ends.
    pub fn lose_context(&self) {
        self.thread[6].store(0, Relaxed);
    }

    /// The thread has returned from its Ruby frame: its control frame pointer is another.
    pub fn pop_frame(&self) {
        self.ec[2].store(self.stack[DUMMY].as_ptr() as usize, Relaxed);
    }

    /// All is whole again.
    pub fn mend(&self) {
        self.stack[METHOD_FLAGS].store(METHOD_LOCAL, Relaxed);
        self.thread[6].store(self.ec.as_ptr() as usize, Relaxed);
    }
}

/// The kernel's id of the calling thread.
pub fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// What the kernel passes for a queued signal with that value: signo and errno, code and padding,
/// pid and uid, value.
pub fn queued(signal: c_int, value: u64) -> [u64; 16] {
    let mut info = [0; 16];
    info[0] = signal as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    // SAFETY: getpid has no preconditions.
    info[2] = unsafe { libc::getpid() } as u64;
    info[3] = value;
    info
}

/// Queues `signal` with `value` to the calling thread, as ticks are sent. It has been handled when
/// this returns, unless it is blocked; the thread was in a system call.
pub fn queue_to_self(signal: c_int, value: u64) {
    let info = queued(signal, value);
    // SAFETY: the kernel copies the 128 bytes of `info`.
    let status = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            libc::getpid(),
            tid(),
            signal,
            info.as_ptr(),
        )
    };
    assert_eq!(
        status, 0,
        "the kernel refuses to queue a signal to ourselves"
    );
}
