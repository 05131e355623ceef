# ConvNeXt-Tiny: the most accurate on photos; needs a GPU, and ImageNet weights or very many images.
#
# Designed for 224x224 color, random crops from 256x256; at least 32x32. 28,589,128 parameters for 1000
# classes.
# Recommended settings: AdamW with weight decay 0.05, learning rate 0.00025 for batches of 64 (more for
# larger ones, in proportion) falling along a cosine after 7% of warm-up, 300 epochs, no mean subtraction
# (the network normalizes its input), crop 224.
#
# paper: Liu et al., 2022, “A ConvNet for the 2020s”, as keras.applications has it.
# settings: solver_type=ADAMW weight_decay=0.05 learning_rate=0.00025 lr_policy=cosine lr_warmup=7
# settings: batch_size=64 train_epochs=300 use_mean=none crop_size=224 aug_flip=fliplr
# few images: batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 32
# pretrained: convnext

import keras


class UserModel(Tower):
    @model_property
    def inference(self):
        net = keras.applications.ConvNeXtTiny(
            weights=None,
            input_shape=self.input_shape,
            classes=self.nclasses,
            classifier_activation=None,  # logits, without softmax
            include_preprocessing=False,  # Keras' preprocessing supports three channels only
        )
        return digits.scale_output(net(self.prepared(self.x), training=self.is_training))

    def prepared(self, x):
        """Normalize by ImageNet's mean and standard deviation, as for Keras' weights of this network."""
        if self.input_shape[2] == 3:
            return (x - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
        return (x - 118.0) / 58.0

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
