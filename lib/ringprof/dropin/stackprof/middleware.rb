# frozen_string_literal: true

# What `require "stackprof/middleware"` finds.
require "ringprof/stackprof/middleware"
