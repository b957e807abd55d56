//! The session, the VALUEs that go with it, and how GC marks them.

use crate::guard::{protect, Failure};
use crate::gvl::{Gvl, GvlCell};
use crate::hooks;
use crate::shutdown;
use crate::thread_events;
use crate::values::NIL;
use rb_sys::{rb_data_type_t, VALUE};
use ringprof_core::capture::preflight::Layout;
use ringprof_core::session::Session;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// VALUEs that live as long as the last profile.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// `metadata:` as it was passed.
    pub metadata: VALUE,
    /// `interval:` as it was passed, or the default.
    pub interval: VALUE,
    /// `out:` as it was passed.
    pub out: VALUE,
    /// All keywords of the last start, a Hash.
    pub options: VALUE,
    /// The tracepoint of object mode.
    pub tracepoint: VALUE,
}

/// Everything behind the methods of `RingProf`.
#[derive(Debug)]
pub struct State {
    pub session: Session,
    pub kept: Kept,
    /// `aggregate:` of the last start.
    pub aggregate: bool,
    /// `on_failure:` of the last start.
    pub raise_failure: bool,
    /// Layout of this VM, if it passed the self-test.
    pub layout: Option<Layout>,
    /// Why capture is postponed; `None` while it is direct.
    pub postponed_because: Option<&'static str>,
    /// The outermost pseudo frame of Ruby 3.1, or 0.
    pub pseudo_root: VALUE,
    /// Allocations since the last sampled one.
    pub allocations: u64,
    /// Threads do not keep to one native thread (`RUBY_MN_THREADS=1`).
    pub m_n_threads: bool,
}

static STATE: GvlCell<Option<State>> = GvlCell::new(None);
/// The Ruby object through which GC finds us.
static WRAPPER: GvlCell<VALUE> = GvlCell::new(NIL);
/// The key under which the main ractor, and no other, has a value.
static MAIN_RACTOR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Runs `body` with the state; see [`GvlCell::with`] for what it must not do.
pub fn with<R>(gvl: Gvl, body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(gvl, |state| {
        let state = state.as_mut().expect("set before any method is defined");
        if state.session.clean_up_after_fork() {
            state.allocations = 0;
        }
        state.session.notice_failure();
        body(state)
    })
}

/// Runs `body` with the session.
pub fn with_session<R>(gvl: Gvl, body: impl FnOnce(&mut Session) -> R) -> R {
    with(gvl, |state| body(&mut state.session))
}

/// A panic in a hook or a job of ours: the profile ends, the program goes on (I11).
pub fn note_panic() {
    // SAFETY: hooks and jobs run under the GVL, and those of another ractor's do nothing that panics.
    let gvl = unsafe { Gvl::assume() };
    STATE.with(gvl, |state| {
        if let Some(state) = state {
            state.session.note_panic();
        }
    });
}

/// The GVL's token for hooks and jobs, which may find themselves on another ractor; `None` there.
pub fn on_main_ractor() -> Option<Gvl> {
    // Relaxed: set at load.
    let key = MAIN_RACTOR.load(Ordering::Relaxed);
    // SAFETY: a key that the VM gave; hooks and jobs run on Ruby threads under their ractor's lock.
    let mark = unsafe { rb_sys::rb_ractor_local_storage_ptr(key.cast()) };
    // SAFETY: the main ractor's lock is held.
    (!mark.is_null()).then(|| unsafe { Gvl::assume() })
}

/// Creates everything at load.
pub fn create(gvl: Gvl) -> Result<(), Failure> {
    // SAFETY: at load, under the GVL; the key and the mark live for ever.
    unsafe {
        let key = rb_sys::rb_ractor_local_storage_ptr_newkey(&raw const RACTOR_MARK.0);
        rb_sys::rb_ractor_local_storage_ptr_set(key, (&raw const RACTOR_MARK).cast_mut().cast());
        // Relaxed: no hook and no job exists yet.
        MAIN_RACTOR.store(key.cast(), Ordering::Relaxed);
    }
    // SAFETY: at load, under the GVL, on the thread that requires us.
    let session = unsafe { Session::new(hooks::table()) };
    thread_events::serve(session.shared());
    let layout = tested(gvl, &session, hooks::layout());
    let pseudo_root = hooks::pseudo_root(layout);
    let state = State {
        session,
        kept: Kept {
            metadata: NIL,
            interval: NIL,
            out: NIL,
            options: NIL,
            tracepoint: NIL,
        },
        aggregate: true,
        raise_failure: true,
        layout,
        postponed_because: None,
        pseudo_root,
        allocations: 0,
        m_n_threads: std::env::var_os("RUBY_MN_THREADS").is_some_and(|value| value == "1"),
    };
    STATE.with(gvl, |slot| *slot = Some(state));
    let wrapper = protect(|| {
        // SAFETY: the type is static; the data is the static state.
        unsafe {
            rb_sys::rb_gc_register_address(WRAPPER.as_ptr());
            rb_sys::rb_data_typed_object_wrap(
                rb_sys::rb_cObject,
                STATE.as_ptr().cast(),
                &raw const TYPE.0,
            )
        }
    })?;
    WRAPPER.with(gvl, |slot| *slot = wrapper);
    shutdown::watch();
    Ok(())
}

/// The layout, if it is known and this VM passes the self-test with it.
pub fn tested(_: Gvl, session: &Session, layout: Option<Layout>) -> Option<Layout> {
    // SAFETY: a Ruby thread.
    let thread = unsafe { hooks::vm_thread(rb_sys::rb_thread_current()) };
    // SAFETY: under the GVL on that thread.
    layout.filter(|&layout| unsafe { session.layout_holds(layout, thread) })
}

struct Mark(rb_sys::rb_ractor_local_storage_type);
// SAFETY: two null function pointers; the address alone is used.
unsafe impl Sync for Mark {}
/// What the main ractor's value points to: nothing to mark, nothing to free.
static RACTOR_MARK: Mark = Mark(rb_sys::rb_ractor_local_storage_type {
    mark: None,
    free: None,
});

struct Type(rb_data_type_t);
// SAFETY: constant data.
unsafe impl Sync for Type {}

/// Not write-barrier protected, on purpose: only then does GC come back to it at the end of an
/// incremental marking, and finds what was captured between two steps of it (I7).
static TYPE: Type = Type(rb_data_type_t {
    wrap_struct_name: c"RingProf".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: Some(mark),
        dfree: Some(free),
        dsize: Some(size),
        dcompact: None,
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

/// Marks and pins. Reads only: GC may call it inside itself, and outside of a GC.
unsafe extern "C" fn mark(state: *mut c_void) {
    // SAFETY: (I2) GC runs on the thread that holds the GVL (all of them, with several ractors), and
    // that thread is in the VM, not in the core: the core allocates no Ruby object.
    let Some(state) = (unsafe { (*state.cast::<Option<State>>()).as_ref() }) else {
        return;
    };
    // SAFETY: (I7) checked when they were captured; rb_gc_mark passes over Fixnums and nil.
    state
        .session
        .each_marked(|value| unsafe { rb_sys::rb_gc_mark(value) });
    for value in [
        state.kept.metadata,
        state.kept.interval,
        state.kept.out,
        state.kept.options,
        state.kept.tracepoint,
        state.pseudo_root,
    ] {
        if value != 0 {
            // SAFETY: VALUEs that Ruby passed to us.
            unsafe { rb_sys::rb_gc_mark(value) };
        }
    }
}

/// The VM frees every object when it ends. What handlers can reach stays (I8).
unsafe extern "C" fn free(_: *mut c_void) {
    shutdown::vm_went_down();
}

unsafe extern "C" fn size(state: *const c_void) -> rb_sys::size_t {
    // SAFETY: as in `mark`.
    let state = unsafe { (*state.cast::<Option<State>>()).as_ref() };
    state.map_or(0, |state| {
        let stats = state.session.stats();
        (stats.table_bytes + stats.ring_words * 8) as rb_sys::size_t
    })
}
