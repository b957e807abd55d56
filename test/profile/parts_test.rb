# frozen_string_literal: true

require "minitest/autorun"
require "support/example_profiles"

# Profiles added up, and parts of profiles.
class PartsTest < Minitest::Test
  include ExampleProfiles

  def test_a_sum_has_what_both_have
    one, other = [1, 2].map { |seed| RingProf::Profile.new(random(seed)) }
    sum = one + other
    %i[samples gc_samples missed_samples].each { |key| assert_equal one.public_send(key) + other.public_send(key), sum.public_send(key), key }
    assert_equal one.states.merge(other.states) { |_, a, b| a + b }, sum.states
    assert_equal stacks(one) + stacks(other), stacks(sum)
    %i[raw_sample_timestamps raw_timestamp_deltas raw_states].each { |key| assert_equal one.data[key] + other.data[key], sum.data[key], key }
    assert_equal 3, sum.threads.size, "the same threads"
    assert_equal sum.samples, sum.threads.sum { |thread| thread[:samples] }
    assert_frames_follow_from_stacks(sum)
  end

  # Ids are addresses: what is at one of them is something else in another process.
  def test_the_same_address_elsewhere
    other = random(1)
    other[:frames].each_value { |frame| frame[:name] = "Other##{frame[:name]}" unless frame[:file].empty? }
    sum = RingProf::Profile.new(random(1)) + RingProf::Profile.new(other)
    assert_equal random(1)[:frames].size + other[:frames].size - 2, sum.frames.size, "garbage collection is the same everywhere"
    assert_frames_follow_from_stacks(sum)
    assert_equal [1, 3], sum.data[:frames].select { |_id, frame| frame[:file].empty? }.keys.sort
  end

  # Two methods of one name, file and line (made in a loop) are two, in the sum as before.
  def test_twins_stay_two
    data = random(1)
    data[:frames][4104].update(data[:frames][4096].slice(:name, :file, :line))
    sum = RingProf::Profile.new(data) + RingProf::Profile.new(data)
    assert_equal data[:frames].size, sum.frames.size
    data[:frames].each { |id, frame| assert_equal frame[:total_samples] * 2, sum.frame(id).total_samples }
    assert_equal data[:raw] * 2, sum.data[:raw]
  end

  def test_metadata_is_kept
    one = RingProf::Profile.new(example.merge(metadata: { host: "a", both: 1, list: [1] }))
    other = RingProf::Profile.new(example.merge(metadata: { pid: 7, both: 2, list: [2] }))
    assert_equal({ host: "a", pid: 7, both: [1, 2], list: [1, 2] }, (one + other).metadata)
    assert_equal({ "path" => "/" }, (RingProf::Profile.new(example) + RingProf::Profile.new(example)).metadata)
  end

  def test_raw_of_one_alone_is_not_kept
    without = RingProf::Profile.new(example.reject { |key| key.start_with?("raw") })
    refute_predicate RingProf::Profile.new(example) + without, :raw?
    refute_predicate without + RingProf::Profile.new(example), :raw?
    nothing = RingProf::Profile.new(example.reject { |key| key.start_with?("raw") }.merge(samples: 0, frames: {}))
    assert_equal example[:raw], (nothing + RingProf::Profile.new(example)).data[:raw]
    assert_equal example[:raw], (RingProf::Profile.new(example) + nothing).data[:raw]
  end

  def test_lines_that_one_does_not_know_are_zero
    lines = [3, 1, 2, 0, 12, 2, 1, 2, 3, 2, 0, 0, 3, 1, 0, 2]
    sum = RingProf::Profile.new(example) + RingProf::Profile.new(example.merge(raw_lines: lines))
    assert_equal [3, 0, 0, 0, 12, 2, 0, 0, 3, 2, 0, 0, 3, 1, 0, 2] + lines, sum.data[:raw_lines]
  end

  def test_what_only_one_has
    extra = example.merge(gc_callers: { 4096 => { name: "<main>", file: "/app/main.rb", samples: 5, total_samples: 5 } },
                          gc_causes: { newobj: { collections: 2, samples: 5 } }, cpu_samples: 9)
    sum = (RingProf::Profile.new(example) + RingProf::Profile.new(extra)).data
    assert_equal extra.values_at(:gc_causes, :cpu_samples), sum.values_at(:gc_causes, :cpu_samples)
    assert_equal 5, sum[:gc_callers][4096][:samples]
    twice = (RingProf::Profile.new(extra) + RingProf::Profile.new(extra)).data
    assert_equal [{ newobj: { collections: 4, samples: 10 } }, 18, 10], [twice[:gc_causes], twice[:cpu_samples], twice[:gc_callers][4096][:samples]]
  end

  def test_threads_of_another_process
    other = random(2)
    other[:threads].each { |thread| thread[:native_id] += 1000 }
    sum = RingProf::Profile.new(random(1)) + RingProf::Profile.new(other)
    assert_equal 6, sum.threads.size
    assert_equal sum.threads.map { |thread| thread[:id] }.uniq, sum.threads.map { |thread| thread[:id] }
    tally = sum.data[:raw_threads].tally
    sum.threads.each_with_index { |thread, index| assert_equal thread[:samples], tally[index] }
  end

  # Where one says what its samples did and the other does not, those of the other ran.
  def test_states_of_a_frame
    told = example
    told[:frames][8192][:states] = { running: [5, 1], waiting: [4, 2], blocked: [6, 0] }
    sum = RingProf::Profile.new(example) + RingProf::Profile.new(told)
    assert_equal({ running: [20, 4], waiting: [4, 2], blocked: [6, 0] }, sum.frame(8192).states)
    sum = RingProf::Profile.new(told) + RingProf::Profile.new(example)
    assert_equal({ running: [20, 4], waiting: [4, 2], blocked: [6, 0] }, sum.frame(8192).states)
  end

  def test_different_things_are_not_added_up
    { mode: :cpu, interval: 100, version: 1.1 }.each do |key, value|
      error = assert_raises(RingProf::Error) { RingProf::Profile.new(example) + RingProf::Profile.new(example.merge(key => value)) }
      assert_match(/\Acannot combine #{key} .* with #{key} #{value}\z/, error.message)
    end
    assert_raises(RingProf::Error) { RingProf::Profile.new(example) + example }
  end

  # Filters that choose samples.

  def test_samples_of_threads
    profile = RingProf::Profile.new(random(3))
    { 1 => [1], 101 => [1], "worker 1" => [1], /worker [12]/ => [1, 2], "main" => [0], ["main", 2] => [0, 2], "nobody" => [] }.each do |threads, expected|
      part = profile.filter(threads: threads)
      assert_equal profile.data[:raw_threads].count { |thread| expected.include?(thread) }, part.samples, threads.inspect
      assert_equal expected, part.threads.map { |thread| thread[:id] }
      assert_equal part.samples, part.threads.sum { |thread| thread[:samples] }
      assert_frames_follow_from_stacks(part)
    end
  end

  def test_samples_in_states
    profile = RingProf::Profile.new(random(4))
    %i[running waiting blocked gc].each do |state|
      part = profile.filter(states: state)
      assert_equal profile.states[state], part.samples
      assert_equal({ running: 0, waiting: 0, blocked: 0, gc: 0, state => part.samples }, part.states)
      assert_equal state == :gc ? part.samples : 0, part.gc_samples
      assert_frames_follow_from_stacks(part)
    end
    assert_equal profile.samples, profile.filter(states: %i[running waiting blocked gc]).samples
  end

  def test_samples_of_a_time
    profile = RingProf::Profile.new(random(5))
    halves = [0...0.1, 0.1..nil].map { |time| profile.filter(time: time) }
    assert_equal [100, profile.samples - 100], halves.map(&:samples)
    assert_equal 10, profile.filter(time: 0.02...0.03).samples
    assert_equal 0, profile.filter(time: 10_000..).samples
    # A run that is cut in two is one again.
    assert_equal profile.frames.to_h { |frame| [frame.id, frame.total_samples] },
                 halves.reduce(:+).frames.to_h { |frame| [frame.id, frame.total_samples] }
    halves.each { |half| assert_frames_follow_from_stacks(half) }
  end

  def test_all_that_is_chosen_at_once
    profile = RingProf::Profile.new(random(6))
    part = profile.filter(threads: [0, 1], states: %i[running blocked], time: 0.02..0.2)
    expected = profile.data[:raw_threads].each_index.count do |index|
      profile.data[:raw_threads][index] < 2 && %i[running blocked].include?(profile.data[:raw_states][index]) && index.between?(20, 200)
    end
    assert_equal expected, part.samples
    assert_frames_follow_from_stacks(part)
  end

  def test_garbage_collection_is_known_by_its_frame_where_states_are_not_told
    data = random(7).reject { |key| %i[raw_states states threads raw_threads].include?(key) }
    whole = RingProf::Profile.new(data).filter(time: 0..)
    assert_equal [data[:samples], data[:gc_samples]], [whole.samples, whole.gc_samples]
  end

  # What was seen twice with something else between is seen once when that is left out.
  def test_equal_stacks_that_come_together_are_one_run
    data = example.merge(raw: [2, 4096, 8192, 3, 1, 4096, 4, 2, 4096, 8192, 13], raw_lines: [2, 3, 11, 3, 1, 3, 4, 2, 3, 11, 13],
                         raw_states: [:running] * 3 + [:blocked] * 4 + [:running] * 13, raw_cpu_weights: [1, 2, 3], cpu_samples: 6)
    part = RingProf::Profile.new(data).filter(states: :running)
    assert_equal [[2, 4096, 8192, 16], [2, 3, 11, 16], [4], 4], part.data.values_at(:raw, :raw_lines, :raw_cpu_weights, :cpu_samples)
    part = RingProf::Profile.new(data).filter(time: 0.002..0.008)
    assert_equal [[2, 4096, 8192, 1, 1, 4096, 4, 2, 4096, 8192, 2], [0, 2, 0]], part.data.values_at(:raw, :raw_cpu_weights)
  end

  def test_what_is_not_told_cannot_be_chosen_by
    without = RingProf::Profile.new(example.reject { |key| key.start_with?("raw") })
    assert_match(/does not include raw samples/, assert_raises(RingProf::Error) { without.filter(time: 0..1) }.message)
    %i[threads states].each do |key|
      error = assert_raises(RingProf::Error) { RingProf::Profile.new(example).filter(key => [:running]) }
      assert_equal "the profile does not tell the #{key} of its samples", error.message
    end
  end

  # Filters that choose frames.

  def test_frames_of_files_and_names
    profile = RingProf::Profile.new(example)
    { { files: "/app/" } => ["App#work", "<main>"], { reject_files: ["/app", "<"] } => ["(marking)", "(garbage collection)"],
      { files: /main\.rb\z/ } => ["App#work", "<main>"], { names: "App#work" } => ["App#work"], { names: "App" } => [],
      { names: [/w/, "<main>"] } => ["App#work", "<main>"], { reject_names: /\(|</ } => ["Integer#times", "App#work"],
      { files: "/app", reject_names: /m/ } => ["App#work"] }.each do |filter, names|
      part = profile.filter(**filter)
      assert_equal names, part.frames.map(&:name), filter
      assert_equal 20, part.samples
      part.stacks.each { |run| assert_empty run.ids - part.data[:frames].keys }
    end
  end

  def test_who_is_left_calls_through_who_is_not
    part = RingProf::Profile.new(example).filter(reject_names: "App#work")
    assert_equal({ 12_288 => 12 }, part.frame(4096).edges)
    assert_equal [[[4096, 12_288], 12], [[4096], 3], [[1, 3], 3], [[1], 2]], part.stacks.map { |run| [run.ids, run.weight] }
    assert_equal [15, 0], [part.frame(4096).total_samples, part.frame(4096).samples]
  end

  def test_stacks_of_which_nothing_is_left
    part = RingProf::Profile.new(random(8)).filter(names: "App#m0")
    weight = part.stacks.sum(&:weight)
    assert_equal [weight] * 4, part.data.values_at(:raw_sample_timestamps, :raw_timestamp_deltas, :raw_states, :raw_threads).map(&:size)
    assert_equal random(8)[:frames][4096][:total_samples], weight
  end

  def test_nothing_asked_nothing_made
    data = example
    assert_same data, RingProf::Profile.new(data).filter.data
  end

  def test_a_dump_of_a_part_is_read_again
    part = RingProf::Profile.new(random(1)).filter(states: :running)
    io = StringIO.new
    part.dump(io)
    assert_equal part.data, RingProf::Profile.parse(io.string).data
  end

  def test_damaged_stacks
    [[3, 1, 2], [2, 1, 3], ["x"], [1, 1, nil], [-1, 1]].each do |raw|
      profile = RingProf::Profile.new(example.merge(raw: raw))
      assert_match(/damaged/, assert_raises(RingProf::Error, raw.inspect) { profile.stacks.to_a }.message)
    end
  end

  private

  def stacks(profile)
    profile.stacks.map { |run| [run.ids.map { |id| profile.frame(id).to_h.values_at(:name, :file, :line) }, run.lines, run.weight] }
  end

  # Counted again, by the way of the examples.
  def assert_frames_follow_from_stacks(profile)
    states = profile.data[:raw_states]
    found = profile.stacks.map do |run|
      [run.ids, run.lines, states[run.first, run.weight].map { |state| [state, 0] }]
    end
    assert_equal profile.samples, profile.stacks.sum(&:weight)
    expected = count(found, profile.data[:frames].transform_values { |frame| frame.slice(:name, :file, :line) })
    profile.data[:frames].each { |id, frame| assert_equal expected[id], frame, frame[:name] }
    assert_equal expected.keys.sort, profile.data[:frames].keys.sort
  end
end
