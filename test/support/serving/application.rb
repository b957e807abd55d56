# frozen_string_literal: true

require "json"
require "pg"

# What is served: each request computes, sleeps, and asks PostgreSQL.
#
# Each process keeps an account of its own, by its own clocks, and leaves it in `account.PID` when it ends: what a profile of
# it is held against. Neither of the two knows of the other.
class Application
  # What one thread has done, in seconds of elapsed time.
  Account = Struct.new(:requests, :compute, :rest, :query)

  REST = 0.003
  QUERY = "SELECT count(*), sum(number % 7) FROM numbers, pg_sleep(0.002) WHERE number % $1 = 0"

  def initialize(database:, role:)
    @database = { host: database, dbname: "postgres", user: role }
    @accounts = []
    @lock = Mutex.new
    at_exit { keep }
  end

  def call(_env)
    account = Thread.current[:account] ||= open_account
    parts = [clocked(account, :compute) { compute }, clocked(account, :rest) { rest }, clocked(account, :query) { query }]
    account.requests += 1
    [200, { "content-type" => "text/plain" }, ["#{parts.join(" ")}\n"]]
  end

  private

  # A millisecond or two, with some garbage.
  def compute
    Array.new(1000) { |number| number * 7919 % 1009 }.sort.each_slice(10).sum { |slice| slice.join.hash & 1 }
  end

  def rest
    sleep REST
  end

  def query
    connection = Thread.current[:connection] ||= PG.connect(**@database)
    connection.exec_params(QUERY, [3]).getvalue(0, 1)
  end

  def clocked(account, part)
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
  ensure
    account[part] += Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
  end

  def open_account
    account = Account.new(0, 0.0, 0.0, 0.0)
    @lock.synchronize { @accounts << account }
    account
  end

  # The CPU clock first: what comes after it is not for the account.
  def keep
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sums = Account.members.to_h { |member| [member, @accounts.sum(&member)] }
    File.write("account.#{Process.pid}", JSON.generate({ **sums, cpu: cpu }))
  end
end
