# frozen_string_literal: true

require "etc"
require "fileutils"
require "support/serving/programs"
require "tmpdir"

module Serving
  # A PostgreSQL of one's own: in a directory for temporary files, on a Unix socket there, as a user without
  # privileges. What it stores may be lost, so nothing waits for the disk.
  class Database
    SETTINGS = {
      "listen_addresses" => "", "fsync" => "off", "synchronous_commit" => "off", "full_page_writes" => "off",
      "shared_buffers" => "16MB", "max_connections" => "40", "autovacuum" => "off", "max_wal_senders" => "0", "wal_level" => "minimal"
    }.freeze
    # What the application asks for.
    CONTENTS = "CREATE TABLE numbers AS SELECT generate_series(1, 2000) AS number"
    # Who runs it in root's place: PostgreSQL refuses root.
    USERS = %w[postgres nobody].freeze

    class << self
      # @return [String, nil] the folder with `initdb` and `postgres`, of the newest version
      def programs
        Dir.glob("/usr/lib/postgresql/*/bin").select { |path| File.executable?("#{path}/postgres") && File.executable?("#{path}/initdb") }
           .max_by { |path| path[/\d+/].to_i }
      end
    end

    # Folder of the socket: the `host` of a connection.
    attr_reader :directory

    # @return [self]
    def start
      @directory = Dir.mktmpdir("ringprof-db")
      FileUtils.chown(user, nil, @directory) if user
      run("initdb", "--pgdata=#{data}", "--username=#{role}", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8")
      settings = SETTINGS.merge("unix_socket_directories" => @directory).flat_map { |key, value| ["-c", "#{key}=#{value}"] }
      @pid = spawn(*command("postgres", "-D", data, *settings), in: File::NULL, %i[out err] => log, pgroup: true)
      Programs.until("PostgreSQL takes connections") { ready? }
      run("psql", "--quiet", "--host=#{@directory}", "--username=#{role}", "--dbname=postgres", "--command=#{CONTENTS}")
      self
    rescue StandardError => e
      said = File.exist?(log) ? File.read(log) : ""
      stop
      raise e, "#{e.message}\n#{said}"
    end

    # Connections that are open are cut.
    def stop
      if @pid
        Process.kill(:INT, @pid)
        Programs.wait(@pid, 20) || kill
      end
      FileUtils.rm_rf(@directory) if @directory
      @pid = @directory = nil
    end

    # The superuser of the database.
    def role
      "ringprof"
    end

    private

    def data
      "#{@directory}/data"
    end

    def log
      "#{@directory}.log"
    end

    def user
      return nil unless Process.euid.zero?

      @user ||= USERS.find { |name| Etc.getpwnam(name) rescue nil } or raise "there is no user to run PostgreSQL as"
    end

    def command(program, *arguments)
      as = user ? ["--reuid=#{user}", "--regid=#{Etc.getpwnam(user).gid}", "--clear-groups"] : []
      [{ "TZ" => "UTC", "HOME" => @directory }, *Programs.bound("INT"), *as, "#{self.class.programs}/#{program}", *arguments]
    end

    def run(*arguments)
      system(*command(*arguments), in: File::NULL, %i[out err] => log, chdir: @directory) or raise "#{arguments.first} has failed"
    end

    def ready?
      raise "PostgreSQL has ended" if Process.wait(@pid, Process::WNOHANG)

      File.socket?("#{@directory}/.s.PGSQL.5432") && File.read(log).include?("ready to accept connections")
    end

    def kill
      Process.kill(:KILL, -@pid)
      Process.wait(@pid)
    end
  end
end
