-- Claims of many names by sixteen agents, as fast as the server answers.
local token = os.getenv("DIBS_TOKEN")
local number = 0

function request()
  number = number + 1
  local agent = number % 16
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer " .. token,
    ["Dibs-Agent"] = "load" .. agent,
  }
  local body = string.format('{"resources":["port:%d-%d"]}', agent, number % 800)
  return wrk.format("POST", "/v1/leases/claim", headers, body)
end

function done(summary, latency, requests)
  local errors = summary.errors.status + summary.errors.read + summary.errors.write
    + summary.errors.connect + summary.errors.timeout
  io.write(string.format("figures %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), errors))
end
