# frozen_string_literal: true

# What `require "stackprof/middleware"` finds.
require "ringprof/stackprof" unless defined?(StackProf::VERSION)
require "ringprof/stackprof/middleware"
