# frozen_string_literal: true

# Steps through every script as this Ruby can run it, with the pre-flight and, where that is deadly, without, and prints
# what came of it. The exit status is 0 only if nothing crashed with the pre-flight and all of the deadly did without.

require "single_step/stepper"

abort "single-step: #{Stepper.refusal}" if Stepper.refusal

# Counts of one way to run the scripts.
class Column
  attr_reader :title

  def initialize(title, switches, how)
    @title = title
    @switches = switches
    @how = how
    @instructions = @recorded = @torn = @crashes = @bare = @bare_crashes = 0
  end

  def run(stepper, scripts)
    puts @title
    scripts.each { |script| walk(stepper, script) }
    (Stepper.deadly & scripts).each { |script| walk_bare(stepper, script) }
  end

  def ok?
    @crashes.zero? && @bare == @bare_crashes
  end

  def row
    [@title, @instructions, @recorded, @torn, @crashes, "#{@bare_crashes} of #{@bare}"]
  end

  private

  def walk(stepper, script)
    outcome = stepper.step(script, *@how, switches: script == Stepper::ENABLING ? Stepper::LATER_COMPILED : @switches)
    return crashed(script, outcome) if outcome.died

    stats = outcome.stats
    raise "#{script}: stacks are not walked in the handler: #{stats[:postponed_because]}" if stats[:capture] != :direct

    @instructions += outcome.instructions
    @recorded += stats[:recorded]
    @torn += stats[:lost][:torn]
    puts format("  %-28s %9d instructions %6d torn", script, outcome.instructions, stats[:lost][:torn])
  end

  def crashed(script, outcome)
    @crashes += 1
    puts format("  %-28s CRASHED: SIG%s\n%s", script, outcome.died, outcome.report)
  end

  def walk_bare(stepper, script)
    outcome = stepper.step(script, "bare", *@how, switches: @switches)
    @bare += 1
    @bare_crashes += 1 if outcome.died
    puts format("  %-28s without the pre-flight: %s", script, outcome.died ? "SIG#{outcome.died}" : "UNHARMED")
  end
end

scripts = Stepper::DEADLY + Stepper::HARMLESS
columns = [[Column.new("Ruby #{RUBY_VERSION}", [], []), scripts + (Stepper.compiles? ? [Stepper::ENABLING] : [])]]
columns << [Column.new("Ruby #{RUBY_VERSION} #{Stepper::COMPILED.join(" ")}", Stepper::COMPILED, ["warm"]), scripts] if Stepper.compiles?

$stdout.sync = true
Stepper.open(extensions: Stepper::MANY_EXTENSIONS) do |stepper|
  columns.each { |column, list| column.run(stepper, ARGV.empty? ? list : list & ARGV) }
end
puts "", "| interpreter | instructions | recorded | torn | crashes | crashes without the pre-flight |", "| --- | --- | --- | --- | --- | --- |"
columns.each { |column, _| puts "| #{column.row.join(" | ")} |" }
exit columns.all? { |column, _| column.ok? }
