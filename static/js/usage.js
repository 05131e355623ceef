// The resource usage of the training.

import { element } from './element.js';
import { bytes } from './format.js';

/** Fills `panel` from {cpu_percent, memory_bytes, device, gpus: [{name, memory_used, memory_total, utilization, temperature}]}. */
export function showUsage(panel, { cpu_percent: cpu, memory_bytes: memory, device, gpus = [] }) {
  panel.hidden = false;
  if (device) panel.querySelector('[data-device]').textContent = device;
  const gauges = [
    gauge('CPU', `${Math.round(cpu)}% of a core`),
    gauge('Memory', bytes(memory)),
    ...gpus.flatMap((gpu) => gpuGauges(gpu, gpus.length > 1)),
  ];
  panel.querySelector('[data-gauges]').replaceChildren(...gauges);
}

function gpuGauges(gpu, several) {
  const prefix = several ? `${gpu.name}: ` : 'GPU ';
  const gauges = [];
  if (known(gpu.utilization)) gauges.push(gauge(`${prefix}load`, `${gpu.utilization}%`, gpu.utilization));
  if (known(gpu.memory_used) && gpu.memory_total) {
    gauges.push(gauge(`${prefix}memory`, `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`, (100 * gpu.memory_used) / gpu.memory_total));
  }
  if (known(gpu.temperature)) gauges.push(gauge(`${prefix}temperature`, `${gpu.temperature} °C`));
  return gauges;
}

const known = (value) => value !== null && value !== undefined;

function gauge(title, words, share = null) {
  const row = element('div', 'gauge', element('span', 'muted', title), element('span', 'number', words));
  const fill = element('span', { class: 'progress-fill', '--value': share });
  if (share !== null) row.append(element('span', { class: 'progress', 'aria-hidden': true }, fill));
  return row;
}
