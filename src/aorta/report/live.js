// Takes the page from the server whenever it has changed. Everything is text the server made; nothing else is loaded.
(function () {
  "use strict";
  var live = document.getElementById("live");
  var page = document.getElementById("page");
  var answer = document.getElementById("said");
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
  var source = new EventSource("events" + window.location.search);
  source.addEventListener("page", function (event) {
    var told = JSON.parse(event.data);
    show(told.fragment);
    say(told.state === "running" ? "" : "ended", told.state === "running" ? "live" : "the run: " + told.state);
  });
  source.addEventListener("bye", function () {
    source.close();
    say("ended", "the run's own view has ended; aorta watch shows this directory again");
  });
  source.onerror = function () { say("lost", "no connection; this is the last picture, trying again"); };
})();
