# frozen_string_literal: true

module RingProf
  # The report formats: one class each, `new(profile, **options).write(io)`.
  module Report
    autoload :Text, "ringprof/report/text"
  end
end
