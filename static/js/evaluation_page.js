// The page of an evaluation: the choice of another one, the precision and recall at a threshold, and large mistakes.

import { toast } from './dialog.js';
import { number } from './format.js';
import { startViewer } from './image_viewer.js';
import { morph } from './morph.js';
import { fragment } from './swap.js';

const choice = document.getElementById('evaluation-choice');
choice?.addEventListener('change', () => choice.requestSubmit());

const panel = document.getElementById('thresholds');
if (panel) startThresholds(JSON.parse(document.getElementById('curve-data').textContent));

function startThresholds(curves) {
  const chosen = document.getElementById('curve-class');
  const slider = document.getElementById('curve-threshold');
  panel.hidden = false;

  const inPercent = (share) => `${(100 * share).toFixed(1)}%`;
  const point = (x, y) => `${(200 * x).toFixed(1)} ${(200 * (1 - y)).toFixed(1)}`;
  // Without any prediction above the threshold, none of them is wrong.
  const precision = ({ hits, false_alarms: alarms }, place) => (hits[place] + alarms[place] ? hits[place] / (hits[place] + alarms[place]) : 1);
  const recall = ({ hits, positives }, place) => hits[place] / positives;
  const alarmRate = ({ false_alarms: alarms, negatives }, place) => (negatives ? alarms[place] / negatives : 0);

  function draw() {
    const curve = curves[chosen.value];
    const places = curve.hits.map((_, place) => place);
    const line = (x, y) => `M${places.map((place) => point(x(curve, place), y(curve, place))).join('L')}`;
    document.getElementById('pr-curve').setAttribute('d', line(recall, precision));
    document.getElementById('roc-curve').setAttribute('d', `${line(alarmRate, recall)}L0 200`);
    document.getElementById('average-precision').textContent = `average ${inPercent(curve.average_precision)}`;
    document.getElementById('curve-auc').textContent = curve.auc === null ? '' : `area ${inPercent(curve.auc)}`;
    mark();
  }

  function mark() {
    const curve = curves[chosen.value];
    const place = Number(slider.value);
    for (const [id, x, y] of [['pr-mark', recall, precision], ['roc-mark', alarmRate, recall]]) {
      const [left, top] = point(x(curve, place), y(curve, place)).split(' ');
      const circle = document.getElementById(id);
      circle.setAttribute('cx', left);
      circle.setAttribute('cy', top);
    }
    document.getElementById('threshold-value').textContent = curve.thresholds ? number(curve.thresholds[place]) : `${slider.value}%`;
    slider.setAttribute('aria-valuetext', document.getElementById('threshold-value').textContent);
    document.getElementById('threshold-words').textContent =
      `Precision ${inPercent(precision(curve, place))}, recall ${inPercent(recall(curve, place))}: ${curve.hits[place].toLocaleString('en')} of ${curve.positives.toLocaleString('en')} found, ${curve.false_alarms[place].toLocaleString('en')} false positives.`;
  }

  // A threshold of the kind, such as the best one of a distance.
  if (curves[0].start !== undefined) slider.value = curves[0].start;
  chosen.addEventListener('change', draw);
  slider.addEventListener('input', mark);
  draw();
}

startViewer(document.getElementById('viewer'), document.getElementById('worst') ?? document.createElement('ul'));

const detections = document.getElementById('detections');
if (detections) startDetections(JSON.parse(detections.dataset.detections));

/** Counts and draws the detections from a score on. The server counts those of each class. */
function startDetections({ percents, hits, false: alarms, objects }) {
  const slider = document.getElementById('score-threshold');
  const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}%` : '–');

  function draw() {
    const threshold = slider.valueAsNumber;
    const place = percents.indexOf(threshold);
    const [found, wrong] = [hits[place], alarms[place]];
    const facts = {
      found: `${found.toLocaleString('en')} of ${objects.toLocaleString('en')}`,
      missed: (objects - found).toLocaleString('en'),
      false: wrong.toLocaleString('en'),
      precision: share(found, found + wrong),
      recall: share(found, objects),
      f1: share(2 * found, found + wrong + objects),
    };
    for (const [name, words] of Object.entries(facts)) detections.querySelector(`[data-fact="${name}"]`).textContent = words;
    document.getElementById('score-value').textContent = `${threshold}%`;
    slider.setAttribute('aria-valuetext', `${threshold}%`);
    for (const box of document.querySelectorAll('#worst [data-status]')) {
      const counts = 100 * box.dataset.score >= threshold;
      box.hidden = box.dataset.status === 'missed' ? counts : !counts;
    }
  }

  slider.addEventListener('input', draw);
  slider.addEventListener('change', async () => {
    const url = new URL(window.location.href);
    url.searchParams.set('threshold', slider.value);
    window.history.replaceState(null, '', url);
    try {
      const page = await fragment(url);
      for (const id of ['matrix', 'classes']) morph(document.getElementById(id), page.getElementById(id));
    } catch (error) {
      toast(error.message, 'danger');
    }
  });
  draw();
}
