//! Options as validated values; every refusal, with its message, is here.

/// What makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Elapsed time of the thread that called start.
    Wall,
    /// CPU time of every Ruby thread.
    Cpu,
    /// Elapsed time, with CPU time beside it.
    CpuAndWall,
    /// Every Nth allocated object.
    Object,
    /// Only explicit calls.
    Custom,
}

impl Mode {
    /// The mode's name, as its Symbol spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
            Self::CpuAndWall => "cpu_and_wall",
            Self::Object => "object",
            Self::Custom => "custom",
        }
    }

    /// The mode of that name.
    ///
    /// # Errors
    /// [`Refusal::Mode`] for any other name.
    pub fn from_name(name: &str) -> Result<Self, Refusal> {
        [
            Self::Wall,
            Self::Cpu,
            Self::CpuAndWall,
            Self::Object,
            Self::Custom,
        ]
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or(Refusal::Mode)
    }

    /// Whether ticks of a clock make the samples.
    #[must_use]
    pub const fn is_timed(self) -> bool {
        matches!(self, Self::Wall | Self::Cpu | Self::CpuAndWall)
    }

    /// Whose samples are taken where nothing was asked for: StackProf's view.
    #[must_use]
    pub const fn default_threads(self) -> Threads {
        match self {
            Self::Cpu | Self::CpuAndWall => Threads::All,
            Self::Wall | Self::Object | Self::Custom => Threads::Starter,
        }
    }

    /// Interval where none was asked for: 1000 µs, or every object.
    #[must_use]
    pub const fn default_interval(self) -> u64 {
        match self {
            Self::Wall | Self::Cpu | Self::CpuAndWall => 1000,
            Self::Object | Self::Custom => 1,
        }
    }
}

/// Where ticks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickChoice {
    /// The tick thread where this process may run on two or more cores, else the timer.
    Auto,
    /// A native thread of our own that signals from another core.
    Thread,
    /// A kernel timer for each sampled thread.
    Timer,
    /// No ticks: the caller plays the signal (test build).
    #[cfg(feature = "testing")]
    None,
}

impl TickChoice {
    /// The choice of that name.
    ///
    /// # Errors
    /// [`Refusal::Tick`] for any other name.
    pub fn from_name(name: &str) -> Result<Self, Refusal> {
        match name {
            "auto" => Ok(Self::Auto),
            "thread" => Ok(Self::Thread),
            "timer" => Ok(Self::Timer),
            #[cfg(feature = "testing")]
            "none" => Ok(Self::None),
            _ => Err(Refusal::Tick),
        }
    }
}

/// Whose samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Those of the thread that called start.
    Starter,
    /// Those of every Ruby thread of the main ractor.
    All,
}

impl Threads {
    /// The choice of that name.
    ///
    /// # Errors
    /// [`Refusal::Threads`] for any other name.
    pub fn from_name(name: &str) -> Result<Self, Refusal> {
        match name {
            "all" => Ok(Self::All),
            "current" => Ok(Self::Starter),
            _ => Err(Refusal::Threads),
        }
    }
}

/// Why an option was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `metadata:` is no Hash.
    Metadata,
    /// `interval:` is out of range.
    Interval,
    /// `mode:` is none of ours.
    Mode,
    /// `buffer:` is out of range.
    Buffer,
    /// `tick:` is none of ours.
    Tick,
    /// `threads:` is none of ours.
    Threads,
    /// `max_overhead:` is out of range.
    Overhead,
    /// `max_overhead:` together with `tick: :timer`.
    OverheadOfTimer,
    /// `max_memory:` is out of range.
    Memory,
    /// `on_failure:` is none of ours.
    OnFailure,
}

impl Refusal {
    /// The message for the person; the first three texts are StackProf's.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Metadata => "metadata should be a hash",
            Self::Interval => "interval is a number of microseconds between 1 and 1 million",
            Self::Mode => "unknown profiler mode",
            Self::Buffer => {
                "buffer is a number of bytes between 131072 (128 KiB) and 1073741824 (1 GiB)"
            }
            Self::Tick => "tick is :auto, :thread or :timer",
            Self::Threads => "threads is :all or :current (the thread that calls start)",
            Self::Overhead => {
                "max_overhead is a share of the time between 0.0001 and 1, for example 0.02"
            }
            Self::OverheadOfTimer => {
                "max_overhead needs the tick thread: leave tick: out, or pass tick: :thread"
            }
            Self::Memory => {
                "max_memory is a number of bytes between 1048576 (1 MiB) and 1099511627776 (1 TiB)"
            }
            Self::OnFailure => "on_failure is :raise or :warn",
        }
    }
}

/// Smallest ring, in bytes: room for three of the deepest records.
pub const MIN_BUFFER: u64 = 128 << 10;
/// Largest ring, in bytes.
pub const MAX_BUFFER: u64 = 1 << 30;
/// Default ring, in bytes.
pub const DEFAULT_BUFFER: u64 = 1 << 20;
/// Least bound on the tables, in bytes.
pub const MIN_MEMORY: u64 = 1 << 20;
/// Greatest bound on the tables, in bytes.
pub const MAX_MEMORY: u64 = 1 << 40;
/// Where nothing was asked for, one thread is ticked by a timer at intervals (µs) below this: measured with the tick thread, a
/// fifth to a half of the ticks due every 20 µs came too late to be worth a record, with the timer a fiftieth.
pub const SHORTEST_FOR_A_THREAD: u64 = 50;
/// Shortest time between two ticks, in ns. A shorter interval is served by weights above 1.
pub const MIN_TICK_NS: u64 = 20_000;

/// Validated options of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What makes a sample.
    pub mode: Mode,
    /// µs between samples for timed modes; objects between samples for [`Mode::Object`].
    pub interval: u64,
    /// Keep raw stacks and times.
    pub raw: bool,
    /// Record GC ticks as the Ruby stack that they interrupted.
    pub ignore_gc: bool,
    /// Size of the ring in bytes.
    pub buffer: u64,
    /// Where ticks come from.
    pub tick: TickChoice,
    /// Whose samples are taken.
    pub threads: Threads,
    /// The share of the time that profiling may cost, in millionths; 0 for no bound.
    pub budget_ppm: u32,
    /// Bytes that the tables may take; 0 for no bound.
    pub max_memory: u64,
}

impl Config {
    /// The defaults of `mode`.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self {
            mode,
            interval: mode.default_interval(),
            raw: false,
            ignore_gc: false,
            buffer: DEFAULT_BUFFER,
            tick: TickChoice::Auto,
            threads: mode.default_threads(),
            budget_ppm: 0,
            max_memory: 0,
        }
    }

    /// Checks a share of the time that profiling may cost; the same in millionths.
    ///
    /// # Errors
    /// [`Refusal::Overhead`] below 0.0001 or above 1.
    pub fn check_overhead(share: f64) -> Result<u32, Refusal> {
        if (0.0001..=1.0).contains(&share) {
            Ok((share * 1e6).round() as u32)
        } else {
            Err(Refusal::Overhead)
        }
    }

    /// Checks an interval: from 1 to 999,999.
    ///
    /// # Errors
    /// [`Refusal::Interval`] outside of it.
    pub fn check_interval(interval: i64) -> Result<u64, Refusal> {
        match u64::try_from(interval) {
            Ok(interval @ 1..=999_999) => Ok(interval),
            _ => Err(Refusal::Interval),
        }
    }

    /// Checks a ring size in bytes.
    ///
    /// # Errors
    /// [`Refusal::Buffer`] outside of [`MIN_BUFFER`]..=[`MAX_BUFFER`].
    pub fn check_buffer(bytes: i64) -> Result<u64, Refusal> {
        match u64::try_from(bytes) {
            Ok(bytes @ MIN_BUFFER..=MAX_BUFFER) => Ok(bytes),
            _ => Err(Refusal::Buffer),
        }
    }

    /// Checks a bound on the tables in bytes.
    ///
    /// # Errors
    /// [`Refusal::Memory`] outside of [`MIN_MEMORY`]..=[`MAX_MEMORY`].
    pub fn check_memory(bytes: i64) -> Result<u64, Refusal> {
        match u64::try_from(bytes) {
            Ok(bytes @ MIN_MEMORY..=MAX_MEMORY) => Ok(bytes),
            _ => Err(Refusal::Memory),
        }
    }

    /// Interval in ns for timed modes, 0 for the others.
    #[must_use]
    pub const fn interval_ns(&self) -> u64 {
        if self.mode.is_timed() {
            self.interval * 1000
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_outside_one_to_a_million_are_refused() {
        for interval in [i64::MIN, -1, 0, 1_000_000, 1_000_001, i64::MAX] {
            assert_eq!(Config::check_interval(interval), Err(Refusal::Interval));
        }
        for interval in [1, 100, 999_999] {
            assert_eq!(Config::check_interval(interval), Ok(interval as u64));
        }
        assert!(Refusal::Interval.message().contains("microseconds"));
    }

    #[test]
    fn modes_have_names_and_nothing_else_does() {
        for mode in [
            Mode::Wall,
            Mode::Cpu,
            Mode::CpuAndWall,
            Mode::Object,
            Mode::Custom,
        ] {
            assert_eq!(Mode::from_name(mode.name()), Ok(mode));
        }
        assert_eq!(Mode::from_name("walls"), Err(Refusal::Mode));
    }

    #[test]
    fn a_budget_is_a_share() {
        assert_eq!(Config::check_overhead(0.02), Ok(20_000));
        for share in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
            assert_eq!(Config::check_overhead(share), Err(Refusal::Overhead));
        }
    }

    #[test]
    fn memory_has_bounds() {
        for bytes in [i64::MIN, -1, 0, (1 << 20) - 1, (1 << 40) + 1] {
            assert_eq!(Config::check_memory(bytes), Err(Refusal::Memory));
        }
        for bytes in [MIN_MEMORY, MAX_MEMORY] {
            assert_eq!(Config::check_memory(bytes as i64), Ok(bytes));
        }
    }

    #[test]
    fn buffers_have_bounds() {
        assert_eq!(
            Config::check_buffer(MIN_BUFFER as i64 - 1),
            Err(Refusal::Buffer)
        );
        assert_eq!(Config::check_buffer(MIN_BUFFER as i64), Ok(MIN_BUFFER));
        assert_eq!(
            Config::check_buffer(MAX_BUFFER as i64 + 1),
            Err(Refusal::Buffer)
        );
        assert_eq!(Config::check_buffer(-5), Err(Refusal::Buffer));
    }
}
