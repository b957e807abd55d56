# frozen_string_literal: true

# What `require "stackprof/report"` finds.
require "ringprof/stackprof" unless defined?(StackProf::VERSION)
require "ringprof/stackprof/report"
