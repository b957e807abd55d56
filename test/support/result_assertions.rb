# frozen_string_literal: true

require "json"

# Every result must hold these, whatever was profiled.
module ResultAssertions
  RESULT_KEYS = %i[
    version mode interval samples gc_samples missed_samples metadata frames
    raw raw_lines raw_sample_timestamps raw_timestamp_deltas
  ].freeze
  RAW_KEYS = RESULT_KEYS.last(4).freeze
  # What StackProf does not have, behind its keys; in timed modes.
  EXTRA_KEYS = %i[states threads gc_causes cpu_samples raw_threads raw_states raw_cpu_weights gc_callers].freeze
  FRAME_KEYS = %i[name file line total_samples samples edges lines].freeze
  EXTRA_FRAME_KEYS = %i[states cpu_samples cpu_total_samples].freeze

  # One run of equal stacks: root first, and one line for each frame.
  Group = Struct.new(:ids, :lines, :weight)

  def assert_valid_results(results)
    # The results are made under stress; looking at them needs none.
    stress = GC.stress
    GC.stress = false
    assert_valid_hash(results)
    assert_valid_frames(results)
    assert_valid_raw(results) if results.key?(:raw)
    assert_survives_formats(results)
  ensure
    GC.stress = stress
  end

  def assert_valid_hash(results)
    assert_instance_of Hash, results
    timed = %i[wall cpu cpu_and_wall].include?(results[:mode])
    assert_equal RESULT_KEYS & results.keys, results.keys.first((RESULT_KEYS & results.keys).size), "keys or their order"
    assert_equal RESULT_KEYS - RAW_KEYS, results.keys - RAW_KEYS - (timed ? EXTRA_KEYS : [])
    assert_equal 1.2, results[:version]
    assert_includes %i[wall cpu cpu_and_wall object custom], results[:mode]
    assert_operator results[:missed_samples], :>=, 0
    assert_includes 0..results[:samples], results[:gc_samples]
    assert_valid_extras(results) if timed
  end

  # States and threads are parts of the whole.
  def assert_valid_extras(results)
    assert_equal results[:samples], results[:states].values.sum, "each sample has a state"
    assert_equal results[:gc_samples], results[:states][:gc]
    threads = results[:threads]
    of_threads = threads.sum { |thread| thread[:samples] }
    assert_operator of_threads, :<=, results[:samples]
    threads.each { |thread| assert_equal thread[:samples], thread[:states].values.sum }
    assert_operator results[:gc_causes].values.sum { |cause| cause[:samples] }, :<=, results[:gc_samples]
    results[:gc_callers].each_value { |frame| assert_includes 0..results[:gc_samples], frame[:total_samples] }
    assert_valid_tags(results, of_threads) if results.key?(:raw)
  end

  def assert_valid_tags(results, of_threads)
    size = results[:raw_sample_timestamps].size
    assert_equal [size, size], results.values_at(:raw_threads, :raw_states).map(&:size)
    assert_equal results[:states].reject { |_state, count| count.zero? }, results[:raw_states].tally if size == results[:samples]
    assert_equal of_threads, results[:raw_threads].compact.size if size == results[:samples]
  end

  def assert_valid_frames(results)
    frames = results[:frames]
    assert_equal results[:samples], frames.each_value.sum { |frame| frame[:samples] }, "each sample has one leaf"
    frames.each do |id, frame|
      assert_includes 0...(2**53), id
      assert_empty frame.keys - FRAME_KEYS - EXTRA_FRAME_KEYS
      refute_predicate frame, :frozen?
      assert_valid_place(frame)
      assert_includes 1..results[:samples], frame[:total_samples]
      assert_includes 0..frame[:total_samples], frame[:samples]
      assert_valid_edges(frame[:edges], frames) if frame.key?(:edges)
      assert_valid_lines(frame[:lines]) if frame.key?(:lines)
    end
  end

  def assert_valid_place(frame)
    %i[name file].each do |key|
      assert_instance_of String, frame[key]
      assert_predicate frame[key], :valid_encoding?
    end
    refute_empty frame[:name]
    assert frame[:line].nil? || frame[:line].positive?, "line #{frame[:line].inspect} of #{frame[:name]}"
  end

  def assert_valid_edges(edges, frames)
    refute_empty edges
    edges.each do |callee, weight|
      assert frames.key?(callee), "edge to an unknown frame"
      assert_operator weight, :>, 0
    end
  end

  def assert_valid_lines(lines)
    refute_empty lines
    lines.each do |line, (total, own)|
      assert_operator line, :>, 0
      assert_operator total, :>, 0
      assert_includes 0..total, own
    end
  end

  def assert_valid_raw(results)
    groups = raw_groups(results)
    assert_equal results[:samples], groups.sum(&:weight)
    groups.each_cons(2) { |one, other| refute_equal [one.ids, one.lines], [other.ids, other.lines], "consecutive equal stacks are one group" }
    groups.each { |group| group.ids.each { |id| assert results[:frames].key?(id), "raw names an unknown frame" } }
    assert_valid_times(results)
    assert_frames_follow_from(groups, results)
  end

  def assert_valid_times(results)
    times = results[:raw_sample_timestamps]
    deltas = results[:raw_timestamp_deltas]
    assert_equal results[:samples], times.length
    assert_equal results[:samples], deltas.length
    assert times.each_cons(2).all? { |one, other| one <= other }, "timestamps go backwards"
    assert deltas.all? { |delta| delta >= 0 }, "negative deltas"
  end

  # The naive way to count, as an oracle: everything that frames say follows from the raw stacks.
  def assert_frames_follow_from(groups, results)
    expected = count_naively(groups, lines: results.key?(:raw_lines))
    aggregate = results[:frames].each_value.any? { |frame| frame.key?(:edges) || frame.key?(:lines) }
    results[:frames].each do |id, frame|
      counted = expected.fetch(id)
      assert_equal counted[:samples], frame[:samples], "self of #{frame[:name]}"
      assert_equal counted[:total_samples], frame[:total_samples], "total of #{frame[:name]}"
      next unless aggregate

      assert_equal counted[:edges], frame.fetch(:edges, {}), "edges of #{frame[:name]}"
      assert_equal counted[:lines], frame.fetch(:lines, {}), "lines of #{frame[:name]}" if results.key?(:raw_lines)
    end
    assert_equal expected.keys.sort, results[:frames].keys.sort
  end

  def count_naively(groups, lines:)
    counts = Hash.new { |hash, id| hash[id] = { samples: 0, total_samples: 0, edges: Hash.new(0), lines: {} } }
    groups.each do |group|
      group.ids.uniq.each { |id| counts[id][:total_samples] += group.weight }
      group.ids.each_cons(2) { |caller_id, callee_id| counts[caller_id][:edges][callee_id] += group.weight }
      counts[group.ids.last][:samples] += group.weight
      count_lines(group, counts) if lines
    end
    counts
  end

  def count_lines(group, counts)
    group.ids.each_with_index do |id, index|
      line = group.lines[index]
      next unless line.positive?

      pair = counts[id][:lines][line] ||= [0, 0]
      pair[0] += group.weight
      pair[1] += group.weight if index == group.ids.length - 1
    end
  end

  def raw_groups(results)
    ids = split_raw(results[:raw])
    return ids.map { |stack, weight| Group.new(stack, nil, weight) } unless results.key?(:raw_lines)

    lines = split_raw(results[:raw_lines])
    assert_equal ids.map { |stack, weight| [stack.length, weight] }, lines.map { |stack, weight| [stack.length, weight] }
    ids.zip(lines).map { |(stack, weight), (stack_lines, _)| Group.new(stack, stack_lines, weight) }
  end

  def split_raw(raw)
    groups = []
    position = 0
    while position < raw.length
      depth = raw[position]
      assert_operator depth, :>, 0
      weight = raw[position + 1 + depth]
      assert_operator weight, :>, 0
      groups << [raw[position + 1, depth], weight]
      position += depth + 2
    end
    assert_equal raw.length, position
    groups
  end

  def assert_survives_formats(results)
    refute_empty JSON.generate(results)
    assert_equal results, Marshal.load(Marshal.dump(results))
  end

  def frame_named(results, name)
    results[:frames].each_value.find { |frame| name === frame[:name] } ||
      flunk("no frame #{name} among #{results[:frames].each_value.map { |frame| frame[:name] }.inspect}")
  end

  def stack_names(results)
    raw_groups(results).map { |group| group.ids.map { |id| results[:frames][id][:name] } }
  end
end
