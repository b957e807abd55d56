# frozen_string_literal: true

# Makes RingProf answer to the name StackProf, for programs and gems that call it by that name:
#
#     gem "ringprof", require: "ringprof/stackprof"
#
# From here on `require "stackprof"`, `"stackprof/report"` and `"stackprof/middleware"` load nothing but this. The
# stackprof gem must not be loaded before. Where no Gemfile says it, the folder `ringprof/dropin` of this gem, first
# on the load path, does the same: there `require "stackprof"` is RingProf.

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
  # Not RingProf's constants: StackProf's Report and Middleware are others.
  constants(false).each { |name| remove_const(name) }

  # The StackProf whose contract this keeps. Gems compare it before they use what came with it.
  VERSION = "0.2.28"

  autoload :Report, "ringprof/stackprof/report"
  autoload :Middleware, "ringprof/stackprof/middleware"
end

$LOADED_FEATURES << "stackprof.rb"
# What gems require by itself: stackprof/report, stackprof/middleware.
$LOAD_PATH.unshift(File.expand_path("dropin", __dir__)) unless $LOAD_PATH.include?(File.expand_path("dropin", __dir__))
