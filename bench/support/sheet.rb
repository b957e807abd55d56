# frozen_string_literal: true

require "etc"
require "json"

# What a benchmark found: one line for each measure, with the bound that it is held to where there is one.
class Sheet
  Measure = Struct.new(:name, :value, :unit, :most, :least, keyword_init: true) do
    # @return [Boolean, nil] nil without a bound
    def kept?
      return if most.nil? && least.nil?

      (most.nil? || value <= most) && (least.nil? || value >= least)
    end

    def cells
      bound = [("≤ #{most}" if most), ("≥ #{least}" if least)].compact.join(", ")
      [name, format("%.3f", value), unit, bound, { true => "yes", false => "NO", nil => "" }.fetch(kept?)]
    end
  end
  HEAD = ["measure", "value", "unit", "bound", "kept"].freeze

  # @param program [String] the benchmark's name
  def initialize(program)
    @program = program
    @measures = []
  end

  # @param most [Numeric, nil] what the value may be at most
  # @param least [Numeric, nil] what it must be at least
  # @return [self]
  def add(name, value, unit = "", most: nil, least: nil)
    @measures << Measure.new(name: name, value: value.to_f, unit: unit, most: most, least: least)
    self
  end

  # @return [Array<String>] the lines of a table that Markdown reads too
  def table
    rows = [HEAD, *@measures.map(&:cells)]
    widths = rows.transpose.map { |column| column.map(&:length).max }
    lines = rows.map { |row| "| #{row.each_with_index.map { |cell, at| cell.ljust(widths[at]) }.join(" | ")} |" }
    lines.insert(1, "| #{widths.map { |width| "-" * width }.join(" | ")} |")
  end

  # Adds the sheet to a file of sheets, in place of an older one of the same program and Ruby.
  def write(path)
    sheets = File.exist?(path) ? JSON.parse(File.read(path)) : []
    sheets.reject! { |sheet| sheet.values_at("program", "ruby") == [@program, RUBY_DESCRIPTION] }
    sheets << { program: @program, **self.class.machine, measures: @measures.map { |measure| { **measure.to_h, kept: measure.kept? } } }
    File.write(path, JSON.pretty_generate(sheets))
  end

  # @return [Hash] date, machine and Ruby
  def self.machine
    { date: Time.now.strftime("%F"), cpus: Etc.nprocessors, cpu: File.read("/proc/cpuinfo")[/^model name\s*: (.*)/, 1],
      kernel: Etc.uname[:release], ruby: RUBY_DESCRIPTION, load: File.read("/proc/loadavg").split.first(3) }
  end

  # @return [String] the same in a line
  def self.introduction
    format("%<date>s, %<cpus>d CPUs (%<cpu>s), Linux %<kernel>s, load %<load>s, %<ruby>s", **machine, load: machine[:load].join(" "))
  end
end
