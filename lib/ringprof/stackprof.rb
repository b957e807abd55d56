# frozen_string_literal: true

# Makes RingProf answer to the name StackProf, for programs and gems that call it by that name:
#
#     gem "ringprof", require: "ringprof/stackprof"
#
# From here on `require "stackprof"` loads nothing more. The stackprof gem must not be loaded before.

require "ringprof"

if defined?(StackProf)
  raise RingProf::Error, "StackProf is already defined: remove the stackprof gem from the Gemfile, " \
                         "or require \"ringprof/stackprof\" before it"
end

# An autoload does not survive the copy, on either side.
RingProf.constants(false).each { |name| RingProf.const_get(name) }

# A copy and not a delegate: the singleton methods are the native ones themselves, so that no frame
# of ours stands between the caller and `StackProf.sample`. State is not copied: it belongs to the
# extension and to RingProf::Results.
StackProf = RingProf.dup

# StackProf's module functions, done by RingProf.
module StackProf
  # Not RingProf's constants: `stackprof/report` must be free to define its own Report.
  constants(false).each { |name| remove_const(name) }

  # The StackProf whose contract this keeps. Gems compare it before they use what came with it.
  VERSION = "0.2.28"
end

$LOADED_FEATURES << "stackprof.rb"
