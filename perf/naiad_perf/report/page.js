"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("specs"), runs = read("runs"), themes = read("themes");
  const root = document.documentElement;
  const views = {}; // by card: what is drawn, its choice and its view

  const stored = () => { try { return localStorage.getItem("naiad-theme"); } catch { return null; } };
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    const colours = themes[theme].range.category;
    for (const dot of document.querySelectorAll(".dot")) {
      dot.style.background = colours[dot.style.getPropertyValue("--n") % colours.length];
    }
  };

  const objects = (table) => table.rows.map((row) => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));

  // A chart of several parts does not follow its container, so its parts get their width here.
  const fitted = (spec, width) => {
    if (!spec.vconcat) return spec;
    const inner = Math.max(220, width - 80);
    return { ...spec, vconcat: spec.vconcat.map((part) => ({ ...part, width: inner })) };
  };

  // On a phone legends stand below each other, in two columns.
  const configured = (width) => {
    const theme = themes[root.dataset.theme];
    if (width > 560) return theme;
    const legend = { ...theme.legend, columns: 2, columnPadding: 10, layout: { top: { direction: "vertical", anchor: "start" } } };
    return { ...theme, legend };
  };

  const filled = (spec, name) => {
    if (name !== "timeline") return spec;
    const run = runs[document.getElementById("run").value];
    const note = document.getElementById("run-note");
    const shown = run.requests.rows.length;
    note.textContent = shown < run.total ? `${shown} of ${run.total} requests shown, evenly spread` : `${run.total} requests`;
    return { ...spec, datasets: { requests: objects(run.requests), rates: objects(run.rates) } };
  };

  const draw = async (card) => {
    const state = views[card];
    const element = document.getElementById(`chart-${card}`);
    state.width = element.clientWidth;
    const spec = fitted(filled(specs[state.chart], state.chart), state.width);
    const actions = { export: true, source: false, compiled: false, editor: false };
    const options = { config: configured(state.width), actions, renderer: "svg", downloadFileName: state.chart };
    if (state.view) state.view.finalize();
    const embedded = await vegaEmbed(element, spec, options);
    state.view = embedded.view;
    if (state.choice) await embedded.view.signal("choice", state.choice).runAsync();
  };
  const drawAll = () => Promise.all(Object.keys(views).map(draw));

  const press = (group, button, attribute) => {
    for (const each of group.querySelectorAll("button")) each.setAttribute(attribute, String(each === button));
  };
  for (const element of document.querySelectorAll(".chart")) {
    views[element.id.slice("chart-".length)] = { chart: element.dataset.first };
  }
  for (const group of document.querySelectorAll("[data-tabs]")) {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      press(group, button, "aria-selected");
      views[group.dataset.tabs].chart = button.dataset.chart;
      draw(group.dataset.tabs);
    });
  }
  for (const group of document.querySelectorAll("[data-choices]")) {
    const state = views[group.dataset.choices];
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      press(group, button, "aria-pressed");
      state.choice = button.dataset.choice;
      if (state.view) state.view.signal("choice", state.choice).runAsync();
    });
  }
  const run = document.getElementById("run");
  if (run) run.addEventListener("change", () => draw("timeline"));

  document.getElementById("theme").addEventListener("click", () => {
    setTheme(root.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("naiad-theme", root.dataset.theme); } catch { /* a page from a file may not store */ }
    drawAll();
  });
  prefersDark.addEventListener("change", (event) => {
    if (stored()) return;
    setTheme(event.matches ? "dark" : "light");
    drawAll();
  });

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      for (const [card, state] of Object.entries(views)) {
        if (document.getElementById(`chart-${card}`).clientWidth !== state.width) draw(card);
      }
    }, 150);
  });

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sign = down ? -1 : 1;
        const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
        const rows = [...table.tBodies[0].rows].sort((one, other) => {
          const a = key(one), b = key(other);
          if (a === "" || b === "") return (a === "") - (b === ""); // undefined stays last
          const numeric = Number(a) - Number(b);
          return sign * (Number.isNaN(numeric) ? a.localeCompare(b, undefined, { numeric: true }) : numeric);
        });
        table.tBodies[0].append(...rows);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    });
  }

  setTheme(stored() ?? (prefersDark.matches ? "dark" : "light"));
  drawAll().then(() => { root.dataset.ready = "true"; });
})();
