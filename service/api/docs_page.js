// Search, and sending the page's requests to the service that it came from. The page is complete without this script.
const blocks = [...document.querySelectorAll(".request")];
const commands = new Map(blocks.map((block) => [block, block.querySelector("code").textContent]));
const tenant = document.getElementById("tenant");
const apiKey = document.getElementById("api-key"); // kept nowhere else
const kept = {}; // values of responses that other requests send
const sent = new Set();

// A tenant of its own, so that the examples find nothing in their way and touch nobody's data.
function newTenant() {
  tenant.value = "try-" + crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
  useTenant();
}

function useTenant() {
  sent.clear();
  for (const name in kept) delete kept[name];
  try { sessionStorage.setItem("tenant", tenant.value); } catch { /* private browsing: a new one for each visit */ }
  for (const block of blocks) {
    block.querySelector("code").textContent = actual(commands.get(block)).replace("http://localhost:8080", location.origin);
    for (const shown of block.querySelectorAll("textarea, .got, .bar b")) shown.remove();
  }
}

const actual = (text) => text.replace(/\bacme\b/g, () => tenant.value);
const filled = (text) => text.replace(/\$([A-Z]+_\d+)/g, (all, name) => kept[name] ?? all);

// Sends a request, and before it those that it needs; true if it did what the page announces.
async function send(block) {
  for (const id of block.dataset.needs.split(" ").filter(Boolean))
    if (!sent.has(id) && !(await send(document.getElementById(id)))) {
      show(block, "bad", "not sent: a request before it failed", "");
      return false;
    }
  const { method, path, headers, body, keeps, status } = block.dataset;
  const edited = block.querySelector("textarea");
  const init = { method, headers: JSON.parse(headers) };
  if (apiKey.value) init.headers["X-Api-Key"] = apiKey.value.trim();
  if (body) init.body = filled(edited ? edited.value : actual(body));
  const start = performance.now();
  try {
    const response = await fetch(filled(actual(path)), init);
    const text = await response.text();
    const good = status === "200" ? response.ok : String(response.status) === status;
    const time = Math.round(performance.now() - start);
    show(block, good ? "good" : "bad", `${response.status} ${response.statusText} in ${time} ms`, indented(text));
    if (!good) return false;
    for (const [name, where] of Object.entries(JSON.parse(keeps)))
      kept[name] = where.split(".").reduce((value, key) => value[key], JSON.parse(text));
    sent.add(block.id);
    return true;
  } catch (error) {
    show(block, "bad", `no response: ${error.message}`, "");
    return false;
  }
}

function show(block, kind, line, text) {
  for (let around = block.closest("details"); around; around = around.parentElement.closest("details")) around.open ||= kind === "bad";
  for (const old of block.querySelectorAll(".got, .bar b")) old.remove();
  const status = document.createElement("b");
  status.className = kind;
  status.textContent = line;
  block.querySelector(".bar").append(status);
  document.getElementById("status").textContent = line;
  if (!text) return;
  const got = document.createElement("pre");
  got.className = "got";
  got.tabIndex = 0;
  got.textContent = text;
  block.append(got);
}

// Indents JSON without reading its numbers, which JavaScript would round. Other text stays as it is.
function indented(text) {
  try { JSON.parse(text); } catch { return text; }
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return text.trim().replace(/"(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|\s+|[{}[\],:]/g, (part) => {
    if (part === "{" || part === "[") { depth++; return part + line(); }
    if (part === "}" || part === "]") { depth--; return line() + part; }
    if (part === ",") return part + line();
    if (part === ":") return ": ";
    return part.trim() === "" ? "" : part;
  });
}

function edit(block) {
  const there = block.querySelector("textarea");
  if (there) { there.remove(); return; }
  const text = document.createElement("textarea");
  text.setAttribute("aria-label", "the body of the request");
  text.spellcheck = false;
  text.value = filled(actual(block.dataset.body));
  text.rows = Math.min(24, text.value.split("\n").length + 1);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(block); }
  });
  block.querySelector(".bar").before(text);
  text.focus();
}

async function copy(button, pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(pre); // if the page may not write to the clipboard, one key press is left
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "new-tenant") { newTenant(); return; }
  const block = button.closest(".request");
  if (button.dataset.do === "copy") copy(button, block.querySelector("pre"));
  if (button.dataset.do === "edit") edit(block);
  if (button.dataset.do === "send") {
    button.disabled = true;
    await send(block);
    button.disabled = false;
    button.focus();
  }
});
tenant.addEventListener("change", useTenant);

const search = document.getElementById("search");
const sections = [...document.querySelectorAll("main section")].map((section) => [section, section.textContent.toLowerCase()]);
const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link.parentElement]));

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const [section, text] of sections) {
    const fits = words.every((word) => text.includes(word));
    section.hidden = !fits;
    found += fits;
    const link = links.get(section.id);
    if (link) link.hidden = !fits;
  }
  for (const group of document.querySelectorAll(".group, .group + .guides, nav h2")) group.hidden = words.length > 0;
  scrollTo(0, 0);
  document.getElementById("found").textContent = words.length ? `${found} of ${sections.length} sections` : "";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, textarea")) { event.preventDefault(); search.focus(); }
  if (event.key === "Escape" && event.target === search) { search.value = ""; search.dispatchEvent(new Event("input")); }
});

let known = "";
try { known = sessionStorage.getItem("tenant") ?? ""; } catch { /* as above */ }
for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
if (known) { tenant.value = known; useTenant(); } else newTenant();
