# frozen_string_literal: true

module RingProf
  # The compiled extension. It defines {RingProf}'s natives and adds here what {Results} needs of a
  # session: `Native.take`, `Native.ready?` and `Native.out`.
  module Native
    # Where the library may be, in order: a precompiled gem holds one for each Ruby minor, a gem
    # built on this machine holds one alone.
    FEATURES = ["ringprof/#{RUBY_VERSION[/\A\d+\.\d+/]}/ringprof", "ringprof/ringprof"].freeze
    REMEDY = "run bin/setup in a checkout, or `gem pristine ringprof` for the gem"
    private_constant :FEATURES, :REMEDY

    class << self
      # Directory of the load path that holds the library.
      #
      # @return [String]
      # @raise [LoadError] when the extension is not built
      def directory
        path.delete_suffix("/#{feature}#{File.extname(path)}")
      end

      # Loads the library.
      #
      # @return [void]
      # @raise [LoadError] when it is not built, or built for another Ruby
      def load
        name = feature
        # The feature and not its path: RubyGems may keep the library outside of lib.
        require name
      rescue LoadError => e
        raise unless name

        raise LoadError, "RingProf's extension does not load in Ruby #{RUBY_VERSION}, it may be built for another: #{REMEDY} (#{e.message})"
      end

      private

      def path
        _kind, path = $LOAD_PATH.resolve_feature_path(feature)
        path
      end

      def feature
        FEATURES.find { |name| $LOAD_PATH.resolve_feature_path(name) } ||
          raise(LoadError, "RingProf's extension is not built for Ruby #{RUBY_VERSION}: #{REMEDY}")
      end
    end
  end
end
