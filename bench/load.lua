-- Adds tasks, takes the next, or claims those whose ids are in a file, as fast as the server answers.
-- Which server it is, and what to do, is in the environment.
local token, side, step = os.getenv("TOKEN"), os.getenv("SIDE"), os.getenv("STEP")
local number, ids = 0, {}

function init()
  if step == "claim" then
    for line in io.lines(os.getenv("IDS")) do ids[#ids + 1] = line end
  end
end

local function dibs(agent)
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer " .. token,
    ["Dibs-Agent"] = "load" .. agent,
  }
  if step == "claim" then
    local body = string.format('{"id":"%s"}', ids[number])
    return wrk.format("POST", "/v1/work/claim", headers, body)
  end
  if step == "next" then
    return wrk.format("POST", "/v1/work/next", headers, "{}")
  end
  local body = string.format('{"id":"add-%d","title":"bench","payload":{"n":1}}', number)
  return wrk.format("POST", "/v1/work/add", headers, body)
end

local function coord(agent)
  local headers = { ["Content-Type"] = "application/json" }
  local call = '{"jsonrpc":"2.0","id":%d,"method":"tasks/%s","params":%s}'
  local params = '{"name":"bench","payload":{"n":1}}'
  if step == "claim" then
    params = string.format('{"id":"%s","agentId":"load%d"}', ids[number], agent)
  end
  local method = step == "claim" and "claim" or "send"
  return wrk.format("POST", "/", headers, string.format(call, number, method, params))
end

function request()
  number = number + 1
  if step == "claim" and number > #ids then
    wrk.thread:stop()
    number = #ids
  end
  return (side == "dibs" and dibs or coord)(number % 16)
end

function done(summary, latency, requests)
  local errors = summary.errors.status + summary.errors.read + summary.errors.write
    + summary.errors.connect + summary.errors.timeout
  io.write(string.format("figures %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), errors))
end
