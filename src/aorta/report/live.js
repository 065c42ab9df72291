// Asks the server every second for the page, where it has changed. All of it is text the server made; nothing else is loaded.
(function () {
  "use strict";
  var live = document.getElementById("live");
  var page = document.getElementById("page");
  var answer = document.getElementById("said");
  var seen = 0;
  function say(state, words) { live.className = state; live.textContent = words; }
  function openOnes() {
    return Array.prototype.map.call(page.querySelectorAll("details"), function (each) { return each.open; });
  }
  function show(fragment) {
    var open = openOnes();
    page.innerHTML = fragment;
    page.querySelectorAll("details").forEach(function (each, index) { each.open = !!open[index]; });
    var heading = page.querySelector("h1");
    if (heading && answer.textContent !== heading.textContent) { answer.textContent = heading.textContent; }
  }
  function take(told) {
    seen = told.number;
    if (told.fragment) { show(told.fragment); }
    if (told.ended) {
      say("ended", "the run's own view has ended; aorta watch shows this directory again");
      return;
    }
    say(told.state === "running" ? "" : "ended", told.state === "running" ? "live" : "the run: " + told.state);
    window.setTimeout(ask, 1000);
  }
  function lost() {
    say("lost", "no connection; this is the last picture, trying again");
    window.setTimeout(ask, 3000);
  }
  function ask() {
    window.fetch("news" + window.location.search + "&seen=" + seen).then(function (response) {
      if (!response.ok) { throw new Error(response.status); }
      return response.json();
    }).then(take).catch(lost);
  }
  ask();
})();
