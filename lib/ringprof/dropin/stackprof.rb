# frozen_string_literal: true

# Found instead of StackProf by programs that have this folder first on their load path.
require "ringprof/stackprof"
