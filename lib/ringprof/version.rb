# frozen_string_literal: true

module RingProf
  # Version of the gem.
  VERSION = "0.1.0"
end
