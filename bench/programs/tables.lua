-- A Lua program of tables and strings: records are parsed from text, grouped, sorted, formatted and
-- joined, with the closures and coroutines of typical programs. A part of each round stays alive.
--
-- usage: tables.lua [SIZE]   about 10 ms each; default 60
--
-- The output depends on the argument only: no work follows the order of a table's keys, which Lua
-- shuffles.

local state = 12345

local function random(limit)
  state = (state * 1103515245 + 12345) % 2147483648
  return state % 99991 % limit
end

local function digest(hash, text)
  for at = 1, #text, 7 do
    hash = (hash * 31 + string.byte(text, at)) % 4294967291
  end
  return hash
end

local function lines_of(count)
  local lines = {}
  for number = 1, count do
    lines[number] = string.format("id=%d;name=name %d;value=%.3f;tags=t%d,t%d,t%d", number,
      random(5003), random(90000) / 7, random(7), random(31), random(101))
  end
  return table.concat(lines, "\n")
end

local function records(text)
  return coroutine.wrap(function()
    for line in text:gmatch("[^\n]+") do
      local record = { tags = {} }
      for key, value in line:gmatch("(%w+)=([^;]*)") do
        if key == "tags" then
          for tag in value:gmatch("[^,]+") do
            record.tags[#record.tags + 1] = tag
          end
        else
          record[key] = value
        end
      end
      coroutine.yield(record)
    end
  end)
end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

local function one_round(count, hash)
  local by_tag, kept = {}, {}
  for record in records(lines_of(count)) do
    local entry = { record.name, tonumber(record.value), tonumber(record.id) }
    for _, tag in ipairs(record.tags) do
      by_tag[tag] = by_tag[tag] or {}
      table.insert(by_tag[tag], entry)
    end
    if entry[3] % 2 == 0 then
      kept[#kept + 1] = function() return record.name .. ": " .. entry[2] end
    end
  end
  for _, tag in ipairs(sorted_keys(by_tag)) do
    local entries = by_tag[tag]
    table.sort(entries, function(a, b)
      return a[2] > b[2] or (a[2] == b[2] and a[3] < b[3])
    end)
    local words = {}
    for at = 1, math.min(20, #entries) do
      words[at] = entries[at][1]:gsub("name", tag):upper()
    end
    hash = digest(hash, table.concat(words, ", "))
  end
  return hash, kept
end

local hash, alive = 7, {}
local size = tonumber(arg[1]) or 60
for round = 1, size do
  local kept
  hash, kept = one_round(900, hash)
  alive[#alive + 1] = kept
  if #alive > 40 then
    hash = digest(hash, table.remove(alive, random(40) + 1)[1]())
  end
end
print(string.format("%d %d", hash, #alive))
