// What scrolls sideways is reached with the keyboard too.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  // Sphinx gives the headings of the navigation no level.
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
});
