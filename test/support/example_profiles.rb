# frozen_string_literal: true

require "ringprof/profile"
require "ringprof/report"
require "stringio"

# Results that were not sampled: what reports must say of them is known.
module ExampleProfiles
  STATES = %i[running waiting blocked].freeze

  module_function

  # 20 samples, 5 of them in garbage collection.
  def example
    {
      version: 1.2, mode: :wall, interval: 1000, samples: 20, gc_samples: 5, missed_samples: 5,
      metadata: { "path" => "/" },
      frames: {
        4096 => { name: "<main>", file: "/app/main.rb", total_samples: 15, samples: 0, edges: { 8192 => 15 }, lines: { 3 => [15, 0] } },
        8192 => { name: "App#work", file: "/app/main.rb", line: 10, total_samples: 15, samples: 3, edges: { 12_288 => 12 }, lines: { 11 => [15, 3] } },
        12_288 => { name: "Integer#times", file: "<cfunc>", line: nil, total_samples: 12, samples: 12 },
        3 => { name: "(marking)", file: "", total_samples: 3, samples: 3 },
        1 => { name: "(garbage collection)", file: "", total_samples: 5, samples: 2, edges: { 3 => 3 } }
      },
      raw: [3, 4096, 8192, 12_288, 12, 2, 4096, 8192, 3, 2, 1, 3, 3, 1, 1, 2],
      raw_sample_timestamps: Array.new(20) { |number| 1_000_000 + number * 1000 },
      raw_timestamp_deltas: [1000] * 20
    }
  end

  # A profile as RingProf makes it in wall mode with all threads: stacks by chance, everything else counted from them
  # here, by another way than the library's.
  #
  # @param file [String] a source file of at least 60 lines, or none
  def random(seed, runs: 120, frames: 25, depth: 9, file: "/app/lib.rb", threads: 3)
    chance = Random.new(seed)
    ids = Array.new(frames) { |index| 4096 + index * 8 }
    stacks = Array.new(runs) { stack(chance, ids, depth, threads) }
    stacks = stacks.chunk_while { |one, other| one.first(2) == other.first(2) }.map(&:first)
    described = ids.each_with_index.to_h { |id, index| [id, described(index, file)] }
    described.merge!(1 => { name: "(garbage collection)", file: "" }, 3 => { name: "(marking)", file: "" })
    results(stacks, described, threads)
  end

  # `[ids, lines, states and threads of the samples]`
  def stack(chance, ids, depth, threads)
    samples = Array.new(1 + chance.rand(6)) { [STATES.sample(random: chance), chance.rand(threads)] }
    return [[1, 3], [0, 0], samples.map { |_state, thread| [:gc, thread] }] if chance.rand < 0.08

    stack = Array.new(1 + chance.rand(depth)) { |index| index.zero? ? ids.first : ids.sample(random: chance) }
    [stack, stack.map { |id| c_function?(ids.index(id)) ? 0 : 10 + chance.rand(40) }, samples]
  end

  def c_function?(index)
    (index % 7) == 6
  end

  def described(index, file)
    return { name: "Kernel#c#{index}", file: "<cfunc>", line: nil } if c_function?(index)

    { name: "App#m#{index}", file: index.even? ? file : "/nonexistent/other.rb", line: 10 + index }
  end

  def results(stacks, described, threads)
    samples = stacks.flat_map(&:last)
    {
      version: 1.2, mode: :wall, interval: 1000, samples: samples.size, gc_samples: samples.count { |state, _| state == :gc },
      missed_samples: 7, metadata: { seed: 1 }, frames: count(stacks, described),
      raw: flat(stacks) { |ids, _lines| ids }, raw_lines: flat(stacks) { |_ids, lines| lines },
      raw_sample_timestamps: samples.each_index.map { |index| 5_000_000 + index * 1000 },
      raw_timestamp_deltas: samples.map { 1000 },
      states: states(samples), threads: Array.new(threads) { |number| thread(number, samples) }.reject { |one| one[:samples].zero? },
      raw_threads: samples.map(&:last), raw_states: samples.map(&:first)
    }
  end

  def flat(stacks)
    stacks.flat_map { |ids, lines, samples| [ids.size, *yield(ids, lines), samples.size] }
  end

  def states(samples)
    { running: 0, waiting: 0, blocked: 0, gc: 0 }.merge(samples.map(&:first).tally)
  end

  def thread(number, samples)
    own = samples.select { |_state, thread| thread == number }
    { id: number, native_id: 100 + number, name: "worker #{number}", main: number.zero?, born: 1, died: nil, samples: own.size, states: states(own) }
  end

  # Frame by frame, over all stacks: slow, and simple enough to be believed.
  def count(stacks, described)
    described.to_h do |id, frame|
      with = stacks.select { |ids, _lines, _samples| ids.include?(id) }
      made = frame.merge(total_samples: with.sum { |stack| stack[2].size },
                         samples: with.sum { |ids, _lines, samples| ids.last == id ? samples.size : 0 })
      edges = Hash.new(0)
      with.each { |ids, _lines, samples| ids.each_cons(2) { |from, to| edges[to] += samples.size if from == id } }
      made[:edges] = edges.to_a.to_h unless edges.empty?
      lines = count_lines(with, id)
      made[:lines] = lines unless lines.empty?
      states = count_states(with, id)
      made[:states] = states if states.values_at(:waiting, :blocked).flatten.any?(&:positive?)
      [id, made]
    end.select { |_id, frame| frame[:total_samples].positive? }
  end

  def count_lines(stacks, id)
    places = stacks.flat_map do |ids, lines, samples|
      ids.each_index.select { |index| ids[index] == id && lines[index].positive? }.map { |index| [lines[index], samples.size, ids.size - 1 == index] }
    end
    places.group_by(&:first).transform_values { |list| [list.sum { |_, weight,| weight }, list.sum { |_, weight, top| top ? weight : 0 }] }
  end

  def count_states(stacks, id)
    STATES.to_h do |state|
      of = ->(list) { list.sum { |_ids, _lines, samples| samples.count { |one, _| one == state } } }
      [state, [of.call(stacks), of.call(stacks.select { |ids,| ids.last == id })]]
    end
  end

  def frozen(value)
    case value
    when Hash then value.to_h { |key, inner| [key, frozen(inner)] }.freeze
    when Array then value.map { |inner| frozen(inner) }.freeze
    else value.freeze
    end
  end

  # What a report writes.
  def report(name, results, **options)
    profile = results.is_a?(RingProf::Profile) ? results : RingProf::Profile.new(results)
    io = StringIO.new
    RingProf::Report.const_get(name).new(profile, **options).write(io)
    io.string
  end
end
