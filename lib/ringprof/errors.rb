# frozen_string_literal: true

module RingProf
  # Root of the errors that are RingProf's own. Bad arguments raise Ruby's own classes
  # (ArgumentError, TypeError), as StackProf does.
  class Error < StandardError; end
end
