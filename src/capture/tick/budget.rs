//! A bound on what profiling costs: the interval stretches until handlers, drains and the tick thread
//! together take no more than their share of the time, and comes back when they take less.
//!
//! Weights are taken from clocks, so they stay true whatever the interval is.

use super::super::clock;
use super::super::counters::Counters;
use super::TickPlan;

/// Time between two decisions, in ns.
const WINDOW_NS: u64 = 50_000_000;
/// Longest interval that a budget leads to, in ns.
const LONGEST_NS: u64 = 1_000_000_000;
/// The new interval's part in the mean of old and new, in quarters: one expensive window is no reason to
/// go all the way.
const NEW_QUARTERS: u64 = 2;
/// A change of less than one part in so many is none.
const STEADY: u64 = 50;
const MILLION: u64 = 1_000_000;

/// Measures and decides.
#[derive(Debug)]
pub(super) struct Budget {
    asked_ns: u64,
    ppm: u64,
    every: u64,
    window_began: u64,
    cost_then: u64,
    /// The tick thread's own clock, up to where it is in the counters.
    cpu_then: u64,
}

impl Budget {
    /// Begins at `now`, with the interval that was asked for in force. On the tick thread.
    pub(super) fn new(plan: TickPlan, now: u64) -> Self {
        Self {
            asked_ns: plan.every_ns,
            ppm: plan.budget_ppm.into(),
            every: plan.every_ns,
            window_began: now,
            cost_then: 0,
            cpu_then: clock::thread_cpu(),
        }
    }

    /// At the end of a window: the interval from now on in ns, if it is to change.
    pub(super) fn look(&mut self, now: u64, counters: &Counters) -> Option<u64> {
        let elapsed = now.saturating_sub(self.window_began);
        // A window holds some ticks, or it says nothing.
        if elapsed < WINDOW_NS.max(4 * self.every) {
            return None;
        }
        self.account(counters);
        let cost = counters.cost_ns();
        let spent = cost.saturating_sub(self.cost_then);
        self.cost_then = cost;
        self.window_began = now;
        if self.ppm == 0 {
            return None;
        }
        let every = self.next(spent, elapsed);
        let changed = every.abs_diff(self.every) > self.every / STEADY;
        changed.then(|| {
            self.every = every;
            every
        })
    }

    /// Carries this thread's CPU time over to the counters.
    pub(super) fn account(&mut self, counters: &Counters) {
        let cpu = clock::thread_cpu();
        counters.tick_cpu_ns.add(cpu.saturating_sub(self.cpu_then));
        self.cpu_then = cpu;
    }

    /// The interval at which `spent` ns in `elapsed` ns would have been the share that is allowed.
    fn next(&self, spent: u64, elapsed: u64) -> u64 {
        let allowed = (elapsed * self.ppm / MILLION).max(1);
        let wanted = (u128::from(self.every) * u128::from(spent) / u128::from(allowed)) as u64;
        let wanted = wanted.clamp(self.asked_ns, LONGEST_NS.max(self.asked_ns));
        (wanted * NEW_QUARTERS + self.every * (4 - NEW_QUARTERS)) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(every: u64, ppm: u32) -> Budget {
        let plan = TickPlan {
            every_ns: every,
            by_cpu: false,
            signal: 0,
            pauses: false,
            leave_sleepers: false,
            budget_ppm: ppm,
        };
        Budget::new(plan, 0)
    }

    #[test]
    fn the_interval_settles_where_the_cost_is_the_share() {
        let mut budget = budget(20_000, 20_000);
        let counters = Counters::default();
        let mut now = 0;
        let mut spent = 0;
        // Each tick costs 10 µs, so 2 % is a tick every 500 µs.
        for _ in 0..40 {
            now += WINDOW_NS;
            spent += WINDOW_NS / budget.every * 10_000;
            counters.handler_ns.set(spent);
            budget.look(now, &counters);
        }
        let off = budget.every.abs_diff(500_000);
        assert!(off < 25_000, "settled at {} ns", budget.every);
        // Ticks that cost nothing bring the interval back to what was asked for.
        for _ in 0..40 {
            now += WINDOW_NS;
            budget.look(now, &counters);
        }
        assert!(budget.every < 22_000, "came back to {} ns", budget.every);
    }

    #[test]
    fn without_a_bound_nothing_changes() {
        let mut budget = budget(20_000, 0);
        let counters = Counters::default();
        counters.handler_ns.set(1 << 40);
        assert_eq!(budget.look(WINDOW_NS, &counters), None);
    }
}
