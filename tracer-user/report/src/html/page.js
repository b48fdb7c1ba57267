"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const LANES = 6;

  // Elements are made of text nodes and attributes that are chosen here: nothing of the program is parsed as markup.
  const make = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) element.append(child);
    }
    return element;
  };
  const h = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);
  // Quotes around names are for terminals.
  const plain = (text) => text.replaceAll("`", "");
  // `name` in prose becomes code.
  const prose = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));

  // ---- Drawing ----

  // Lines of at most so many characters, and at most so many of them.
  const wrap = (text, columns, most) => {
    const lines = [];
    let line = "";
    for (const word of text.split(" ")) {
      let rest = word;
      if (line && line.length + 1 + rest.length > columns) { lines.push(line); line = ""; }
      while (rest.length > columns) { lines.push(rest.slice(0, columns)); rest = rest.slice(columns); }
      line = line ? line + " " + rest : rest;
    }
    lines.push(line);
    if (lines.length <= most) return lines;
    const cut = lines.slice(0, most);
    cut[most - 1] = cut[most - 1].slice(0, columns - 1) + "…";
    return cut;
  };
  const arrowHead = (x, y, angle, kind) => s("path", {
    class: "head-shape " + kind, d: "M0,0 L-9,-4.5 L-9,4.5 Z", transform: `translate(${x},${y}) rotate(${angle})`,
  });
  const lineId = (prefix, file, line, files) => `${prefix}-l${files.indexOf(file)}-${line}`;

  // The interleaving: a column for each thread, time downwards, a box for each step.
  const timeline = (finding, prefix, files, room) => {
    const count = finding.threads.length;
    const width = Math.max(260, Math.min(470, Math.floor((room - 4) / count)));
    const inner = width - 64, columns = Math.floor((inner - 42) / 7);
    const left = (lane) => lane * width + 12;
    let y = 52;
    const boxes = finding.steps.map((step) => {
      const lines = wrap(plain(step.text), columns, 4);
      const under = wrap(step.place + (step.calls ? ` in ${step.calls}` : ""), Math.floor((inner - 42) / 6.4), 2);
      const box = { x: left(step.lane), y, height: 12 + 17 * lines.length + 15 * under.length, lines, under };
      y += box.height + 16;
      return box;
    });
    const svg = s("svg", {
      width: width * count, height: y, viewBox: `0 0 ${width * count} ${y}`, role: "group",
      "aria-label": `Interleaving of ${count} threads in ${finding.steps.length} steps`,
    });
    finding.threads.forEach((thread, lane) => {
      const x = left(lane) + inner / 2, color = lane % LANES;
      svg.append(
        s("text", { x: left(lane), y: 18, class: `head f${color}` }, thread.label + (thread.name && thread.name !== thread.label ? ` (${thread.name})` : "")),
        s("text", { x: left(lane), y: 36, class: "faint mono" }, wrap(thread.regions.join(", "), Math.floor(inner / 7.9), 1)[0]),
        s("line", { class: "lifeline", x1: x, x2: x, y1: 46, y2: y - 8 }),
      );
      const mine = boxes.filter((_, at) => finding.steps[at].lane === lane && finding.steps[at].is_in_region);
      if (mine.length) {
        const last = mine[mine.length - 1];
        svg.append(s("rect", { class: `region f${color}`, x: left(lane) - 10, width: inner + 20, rx: 6,
          y: mine[0].y - 6, height: last.y + last.height - mine[0].y + 12 }));
      }
    });
    finding.steps.forEach((step, at) => {
      const box = boxes[at], number = at + 1;
      const target = step.file ? lineId(prefix, step.file, step.line, files) : null;
      const after = finding.links.filter(([, sink]) => sink === number).map(([source, , racy]) => `after ${source}${racy ? ", racy" : ""}`);
      const label = `Step ${number}, ${finding.threads[step.lane].label} ${step.text}, ${step.place}${after.length ? ", " + after.join(", ") : ""}`;
      svg.append(s("a", { href: target ? "#" + target : `#${prefix}-s${number}`, id: `${prefix}-s${number}`, class: step.closes ? "closes" : null, "aria-label": label },
        s("title", null, label),
        s("rect", { x: box.x, y: box.y, width: inner, height: box.height, rx: 6 }),
        s("circle", { class: `f${step.lane % LANES}`, cx: box.x + 18, cy: box.y + 17, r: 11 }),
        s("text", { class: "number", x: box.x + 18, y: box.y + 21 }, String(number)),
        box.lines.map((line, row) => s("text", { x: box.x + 36, y: box.y + 20 + 17 * row }, line)),
        box.under.map((line, row) => s("text", { x: box.x + 36, y: box.y + 18 + 17 * box.lines.length + 15 * row, class: "faint mono", "font-size": 11 }, line))));
    });
    finding.links.forEach(([source, sink, racy]) => {
      const from = boxes[source - 1], to = boxes[sink - 1];
      const kind = racy ? "racy" : "";
      const y1 = from.y + from.height / 2, y2 = to.y + to.height / 2;
      const side = to.x > from.x ? 1 : to.x < from.x ? -1 : 0;
      const x1 = side >= 0 ? from.x + inner : from.x, x2 = side > 0 ? to.x : to.x + inner;
      const bend = side ? side * Math.min(60, Math.abs(x2 - x1) / 2 + 20) : 18;
      svg.append(s("g", null,
        s("title", null, `step ${source} happens before step ${sink}${racy ? ": racy" : ""}`),
        s("path", { class: `arrow ${kind}`, d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - (side || -1) * Math.abs(bend)},${y2} ${x2},${y2}` }),
        arrowHead(x2, y2, side > 0 ? 0 : 180, kind)));
    });
    return svg;
  };

  // The witness: transactions on a circle, dependencies between them.
  const graph = (finding) => {
    const count = finding.nodes.length, w = 190, high = 46;
    const radius = count <= 2 ? 0 : Math.max(120, (count * 150) / (2 * Math.PI));
    const W = count <= 2 ? 660 : radius * 2 * 1.5 + w + 80;
    const at = finding.nodes.map((_, n) => {
      if (count <= 2) return { x: n ? W - w / 2 - 14 : w / 2 + 14, y: 80 };
      const turn = (2 * Math.PI * n) / count - Math.PI / 2;
      return { x: W / 2 + radius * 1.5 * Math.cos(turn), y: radius + high / 2 + 14 + radius * Math.sin(turn) };
    });
    const H = Math.max(...at.map(({ y }) => y)) + high / 2 + (count <= 2 ? 56 : 40);
    const svg = s("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Cycle of ${count} transactions` });
    // Where a line from the middle of a node to a point leaves its box.
    const border = (node, to) => {
      const dx = to.x - node.x, dy = to.y - node.y;
      const scale = Math.min(Math.abs((w / 2 + 4) / (dx || 1e-6)), Math.abs((high / 2 + 4) / (dy || 1e-6)));
      return { x: node.x + dx * scale, y: node.y + dy * scale };
    };
    const labels = [];
    finding.edges.forEach((edge) => {
      const a = at[edge.from], b = at[edge.to];
      if (edge.from === edge.to) return;
      const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy);
      const twin = finding.edges.filter((other) => (other.from === edge.from && other.to === edge.to) || (other.from === edge.to && other.to === edge.from));
      const bow = count === 2 ? -56 - 26 * Math.floor(twin.indexOf(edge) / 2) : 44 + 30 * Math.max(0, twin.indexOf(edge));
      const mid = { x: (a.x + b.x) / 2 + (dy / length) * bow, y: (a.y + b.y) / 2 - (dx / length) * bow };
      const from = border(a, mid), to = border(b, mid);
      const kind = edge.kind === "dependency" ? "" : edge.kind;
      svg.append(s("path", { class: `arrow ${kind}`, d: `M${from.x},${from.y} Q${mid.x},${mid.y} ${to.x},${to.y}` }),
        arrowHead(to.x, to.y, (Math.atan2(to.y - mid.y, to.x - mid.x) * 180) / Math.PI, kind));
      const text = wrap((edge.steps ? `${edge.steps[0]} → ${edge.steps[1]}  ` : "") + plain(edge.label), 34, 1)[0];
      // Beside the line, which may be shorter than its label; between two boxes there is room on the line.
      const pull = count === 2 ? 0.5 : 0.95;
      const x = ((from.x + to.x) / 2) * (1 - pull) + mid.x * pull, y = ((from.y + to.y) / 2) * (1 - pull) + mid.y * pull;
      labels.push(s("g", { class: "edge-label" },
        s("rect", { x: x - text.length * 3.4 - 6, y: y - 10, width: text.length * 6.8 + 12, height: 20, rx: 4 }),
        s("text", { x, y: y + 4, "text-anchor": "middle", "font-size": 12 }, s("title", null, edge.label), text)));
    });
    finding.nodes.forEach((node, n) => {
      const { x, y } = at[n], lines = wrap(plain(node.label), 25, 2);
      svg.append(s("g", { class: n ? "node" : "node first" }, s("title", null, node.label),
        s("rect", { class: `s${node.lane % LANES}`, x: x - w / 2, y: y - high / 2, width: w, height: high, rx: 8 }),
        lines.map((line, row) => s("text", { x, y: y + 5 + (row - (lines.length - 1) / 2) * 16, "text-anchor": "middle" }, line))));
    });
    svg.append(...labels);
    return svg;
  };

  // Known lines around the steps, with the numbers of the steps beside them.
  const excerpts = (finding, sources, prefix, files) => files.map((file) => {
    const known = sources[file] || {};
    const mine = new Map();
    finding.steps.forEach((step, at) => {
      if (step.file === file) mine.set(step.line, [...(mine.get(step.line) || []), at + 1]);
    });
    const all = new Set([...Object.keys(known).map(Number), ...mine.keys()]);
    const near = [...all].filter((line) => [...mine.keys()].some((of) => Math.abs(of - line) <= 12)).sort((a, b) => a - b);
    let last = null;
    const rows = [];
    for (const line of near) {
      if (last !== null && line > last + 1) rows.push(h("tr", { class: "cut" }, h("td", { class: "no" }, "⋯"), h("td"), h("td")));
      last = line;
      const by = (mine.get(line) || []).map((number) => h("a", { href: `#${prefix}-s${number}`, "aria-label": `step ${number}`, class: `b${finding.steps[number - 1].lane % LANES}` }, String(number)));
      rows.push(h("tr", { id: lineId(prefix, file, line, files), class: by.length ? "at" : null, tabindex: -1 },
        h("td", { class: "no" }, String(line)), h("td", { class: "by" }, by), h("td", null, known[line] || "")));
    }
    return h("figure", { class: "excerpt", style: "margin-inline: 0" }, h("figcaption", null, file), h("table", null, h("tbody", null, rows)));
  });

  // ---- Findings ----

  const body = (finding, report, prefix, room) => {
    const files = [...new Set(finding.steps.filter((step) => step.file).map((step) => step.file))];
    const help = finding.notes.find(([kind]) => kind === "help");
    const rule = data.rules[finding.rule];
    const parts = [
      h("ul", { class: "places" }, finding.places.map((place) => h("li", null, h("span", { class: "code" }, place.text), " — ", place.meaning))),
      help && h("p", { class: "help" }, h("b", null, "Help: "), prose(help[1])),
    ];
    if (finding.steps.length) parts.push(h("h3", null, "Interleaving"), h("div", { class: "scroll" }, timeline(finding, prefix, files, room)));
    if (files.length) parts.push(h("h3", null, "Source"), excerpts(finding, report.sources, prefix, files));
    if (finding.nodes.length > 1) parts.push(h("h3", null, "Cycle of transactions"), h("div", { class: "scroll" }, graph(finding)));
    parts.push(h("h3", null, "What is known"), h("dl", null,
      finding.notes.filter(([kind]) => kind !== "help").map(([kind, text]) => [h("dt", null, kind), h("dd", null, prose(text))]),
      finding.splits.map((text) => [h("dt", null, "lock"), h("dd", null, prose(text))]),
      finding.aside && [h("dt", null, "set aside"), h("dd", null, finding.aside)],
      [h("dt", null, finding.rule), h("dd", null, h("b", null, rule.title), ": ", rule.meaning, " ", h("i", null, "Usual repair: "), prose(rule.repair))]));
    return h("div", { class: "body" }, parts);
  };

  const rows = [];
  const open = (row) => {
    if (!row.body) {
      row.body = body(row.finding, row.report, row.prefix, Math.max(480, row.element.clientWidth - 40));
      row.element.append(row.body);
    }
  };
  const list = (report, number) => {
    const many = data.reports.length > 1;
    const elements = report.findings.map((finding, at) => {
      const prefix = (many ? `r${number}-` : "") + (finding.id || `f${at}`);
      const kind = finding.class || "violation";
      const css = { likely: "likely", possible: "possible", "by design": "design" }[finding.class] || "likely";
      const element = h("details", { class: "finding", id: prefix },
        h("summary", null,
          h("span", { class: `class ${css}` }, kind), h("span", { class: "id" }, finding.id),
          h("span", { class: "title" }, prose(finding.headline), finding.aside && h("span", { class: "aside" }, " set aside")),
          h("span", { class: "where" }, [finding.gap, finding.cut].filter(Boolean).join("; "))));
      const text = [kind, finding.id, finding.region, finding.headline, finding.gap, finding.rule,
        ...finding.places.map((place) => place.text), ...finding.steps.map((step) => `${step.text} ${step.place}`)].join("\n").toLowerCase();
      const row = { element, finding, report, prefix, text, kind, body: null };
      element.addEventListener("toggle", () => element.open && open(row));
      rows.push(row);
      return element;
    });
    return h("section", null,
      many && h("h2", null, report.name), many && h("p", { class: "summary" }, report.summary),
      report.verdict && h("p", { class: "verdict" }, prose(report.verdict)), elements,
      report.warnings.length > 0 && h("details", { class: "warnings" }, h("summary", null, `${report.warnings.length} ${report.warnings.length > 1 ? "limits" : "limit"} of what was seen`),
        h("ul", null, report.warnings.map(([message, remedy]) => h("li", null, prose(message), remedy && h("small", null, prose(remedy)))))));
  };

  const page = document.getElementById("page");
  const single = data.reports.length === 1 ? data.reports[0] : null;
  const sections = data.reports.map(list);
  const choice = (label, values, names) => h("select", { "aria-label": label },
    h("option", { value: "" }, label), values.map((value) => h("option", { value }, names ? names(value) : value)));
  const unique = (of) => [...new Set(rows.map(of))];
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search in findings" });
  const classes = choice("All classes", unique((row) => row.kind));
  const rules = choice("All patterns", unique((row) => row.finding.rule).sort(), (id) => `${id} ${data.rules[id].title}`);
  const regions = choice("All regions", unique((row) => row.finding.region).sort());
  const aside = h("input", { type: "checkbox" });
  const shown = h("span", { class: "shown", role: "status" });
  const has = { aside: rows.some((row) => row.finding.aside) };
  const empty = h("p", { class: "empty", hidden: true }, "No finding fits these filters.");

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    for (const row of rows) {
      const fits = (!classes.value || row.kind === classes.value) && (!rules.value || row.finding.rule === rules.value)
        && (!regions.value || row.finding.region === regions.value) && (aside.checked || !row.finding.aside)
        && words.every((word) => row.text.includes(word));
      row.element.hidden = !fits;
      number += fits;
    }
    shown.textContent = `${number} of ${rows.length}`;
    empty.hidden = number > 0 || rows.length === 0;
  };
  for (const control of [search, classes, rules, regions, aside]) control.addEventListener("input", filter);

  page.replaceChildren(...[
    h("header", null,
      h("h1", null, h("small", null, data.tool), single ? single.name : `${data.reports.length} reports`),
      single && h("p", { class: "summary" }, single.summary)),
    rows.length > 0 && h("div", { class: "filters", role: "search" }, search, classes, rules, regions,
      has.aside && h("label", null, aside, "set aside"), shown),
    rows.length > 0 && h("p", { class: "keys" }, h("kbd", null, "/"), " search  ", h("kbd", null, "j"), " ", h("kbd", null, "k"), " next, previous  ",
      h("kbd", null, "Enter"), " open  ", h("kbd", null, "Esc"), " back to all"),
    ...sections, empty].filter(Boolean));
  filter();

  // ---- Keyboard, links and paper ----

  const show = (id) => {
    const row = rows.find((of) => id === of.prefix || id.startsWith(of.prefix + "-"))
      // With several reports, the first that has such a defect.
      || rows.find((of) => id === of.finding.id);
    if (!row) return;
    row.element.hidden = false;
    row.element.open = true;
    open(row);
    const target = document.getElementById(id) || row.element;
    target.scrollIntoView({ block: target === row.element ? "start" : "center" });
    (target === row.element ? row.element.firstChild : target).focus({ preventScroll: true });
  };
  addEventListener("hashchange", () => show(decodeURIComponent(location.hash.slice(1))));
  if (location.hash) show(decodeURIComponent(location.hash.slice(1)));
  else {
    const first = rows.find((row) => !row.element.hidden && row.finding.counts);
    if (first && rows.length <= 10) { first.element.open = true; open(first); }
  }
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select");
    if (event.key === "Escape") { search.value = ""; for (const control of [classes, rules, regions]) control.value = ""; filter(); event.target.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { search.focus(); event.preventDefault(); return; }
    if (event.key !== "j" && event.key !== "k") return;
    const visible = rows.filter((row) => !row.element.hidden);
    const at = visible.findIndex((row) => row.element.contains(document.activeElement));
    const next = visible[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
    if (next) { next.element.firstChild.focus(); event.preventDefault(); }
  });
  // On paper what is likely is open, and whatever was opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = rows.filter((row) => !row.element.hidden && !row.element.open && row.finding.class !== "by design").slice(0, 50);
    for (const row of opened) { row.element.open = true; open(row); }
  });
  addEventListener("afterprint", () => { for (const row of opened) row.element.open = false; });
})();
