// Replaces what is live on a page when the server says that the log has grown. Without it the page is complete.
(() => {
  "use strict";
  if (!document.getElementById("live") || !window.EventSource) return;
  const PAUSE = 1000, events = new URL("events", document.currentScript.src);
  let busy = false, again = false;
  const replace = (next, id) => {
    const old = document.getElementById(id), fresh = next.getElementById(id);
    if (!old || !fresh || old.innerHTML === fresh.innerHTML) return;
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const link = focus && focus.getAttribute("href"), region = focus && focus.getAttribute("aria-labelledby");
    old.replaceChildren(...fresh.childNodes);
    const same = link ? `a[href="${CSS.escape(link)}"]` : region ? `[aria-labelledby="${CSS.escape(region)}"]` : null;
    const found = same && old.querySelector(same);
    if (found) found.focus({ preventScroll: true });
  };
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.title = next.title;
        replace(next, "status");
        replace(next, "live");
      }
    } catch { /* The server has stopped: what was shown last stays. */ }
    setTimeout(() => { busy = false; if (again) { again = false; refresh(); } }, PAUSE);
  };
  const follow = () => {
    const source = new EventSource(events);
    source.addEventListener("change", refresh);
    // Too many viewers: look now and then.
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => { refresh(); follow(); }, 10 * PAUSE);
    });
  };
  follow();
})();
