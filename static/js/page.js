// The behavior of every page.

import { startCopying } from './copy.js';
import { startJobActions } from './job_actions.js';
import { startPathFields } from './path_field.js';
import { startThresholds } from './score_threshold.js';
import { startThemeSwitch } from './theme_switch.js';
import { startTimes } from './times.js';
import { startViewSettings } from './view_settings.js';

startThemeSwitch(document.getElementById('theme-switch'));
startJobActions();
startCopying();
startTimes();
startPathFields();
startThresholds(document);
startViewSettings(document);
document.addEventListener('click', (event) => event.target.closest('[data-print]') && print());
document.getElementById('form-errors')?.focus();
