# frozen_string_literal: true

# What `require "stackprof/report"` finds.
require "ringprof/stackprof/report"
